from __future__ import annotations

import io
import re
import threading

import pytest
from report_studies import DEFAULT, KNOBS, make_study, make_task, make_trial, simulated
from rich.console import Console

from autoscout.analysis.tally import Tally
from autoscout.core.clock import VirtualClock
from autoscout.core.task import Budget, Task
from autoscout.core.trial import DEFAULT_AGAIN, Measurement, Proposal, Status
from autoscout.report.progress import ProgressDisplay


def quiet(width: int = 200, terminal: bool = False) -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, width=width, force_terminal=terminal, color_system=None, legacy_windows=False), text


def with_budget(**bounds: float) -> Task:
    base = make_task()
    return Task(system=base.system, objective=base.objective, budget=Budget(**bounds))  # type: ignore[arg-type]


def shown(progress: ProgressDisplay, width: int = 200) -> str:
    console, text = quiet(width)
    console.print(progress.render())
    return text.getvalue()


def test_one_line_per_trial_without_a_terminal() -> None:
    console, text = quiet()
    with ProgressDisplay(make_task(trials=4), DEFAULT, console=console, clock=VirtualClock(), knobs=KNOBS) as progress:
        progress.phase("search")
        for trial in (
            make_trial(0, DEFAULT, 100.0),
            make_trial(1, DEFAULT.extend(noise=1), status=Status.OOM_START, reason="cannot allocate [bold]9[/bold] GiB\nmore"),
            make_trial(2, DEFAULT.extend(threads=8), 125.0),
        ):
            progress.started(trial.proposal)
            progress.finished(trial)
    lines = text.getvalue().splitlines()
    assert lines[0] == "search"
    assert len(lines) == 4
    assert "[1/4 trials] #0 ok output_throughput=100.0" in lines[1]
    assert "oom_start: cannot allocate [bold]9[/bold] GiB" in lines[2]
    assert "new best 125.0, +25.0 % so far" in lines[3]
    assert "threads=8" in lines[3]
    assert "\x1b" not in text.getvalue()


@pytest.mark.parametrize(("stored", "told"), [(5, "5 stored trials"), (1, "1 stored trial")])
def test_stored_trials_of_a_resumed_study_are_counted_in_silence(stored: int, told: str) -> None:
    console, text = quiet()
    progress = ProgressDisplay(make_task(trials=10), DEFAULT, console=console, clock=VirtualClock())
    for trial in make_study(5, rounds=0)[:stored]:
        progress.finished(trial)
    assert text.getvalue() == ""
    progress.phase("search")
    progress.close()
    assert text.getvalue() == f"search: resumes after {told}\n"


@pytest.mark.parametrize(("wall_s", "rounds", "told"), [(50.0, 5, True), (70.0, 5, False), (10.0, 0, False)])
def test_a_budget_that_may_be_too_short_for_a_verdict_is_told_after_the_default(wall_s: float, rounds: int, told: bool) -> None:
    console, text = quiet()
    progress = ProgressDisplay(
        with_budget(wall_s=wall_s), DEFAULT, console=console, clock=VirtualClock(), final_trials=3 * rounds, final_rounds=rounds
    )
    progress.phase("search")
    progress.finished(make_trial(0, DEFAULT, 100.0))  # takes eight seconds
    assert ("a measurement took 8.0 s; a verdict needs about 8, up to 1 m 04 s" in text.getvalue()) is told
    progress.finished(make_trial(1, DEFAULT, 100.0, repeat=1))
    assert text.getvalue().count("verdict") == told


def test_a_repeat_of_a_disturbed_trial_is_announced() -> None:
    console, text = quiet()
    progress = ProgressDisplay(make_task(), DEFAULT, console=console, clock=VirtualClock(), knobs=KNOBS)
    busy = Measurement(status=Status.OK, metrics={}, conditions={"other_cpu_share": 0.37, "cpu_pressure": 0.5}, cost_s=20.0)
    progress.repeated(Proposal(config=DEFAULT.extend(threads=8)), busy)
    assert text.getvalue() == "disturbed by other work (others used 37 % of its cores): measured again after 20 s: threads=8\n"
    progress.repeated(Proposal(config=DEFAULT), Measurement(status=Status.ABORTED, reason="oom_start while others used its GPUs: pid 7"))
    assert "oom_start while others used its GPUs: pid 7: measured again" in text.getvalue()


def test_the_display_shows_best_running_and_failures() -> None:
    clock = VirtualClock(1000.0)
    progress = ProgressDisplay(make_task(trials=10), DEFAULT, console=quiet()[0], clock=clock, knobs=KNOBS, live=False)
    progress.phase("search")
    assert "no configuration has run yet" in shown(progress)
    progress.finished(make_trial(0, DEFAULT, 100.0))
    progress.started(Proposal(config=DEFAULT.extend(threads=8)))
    for number in range(1, 6):
        progress.finished(make_trial(number, DEFAULT.extend(noise=number), status=Status.TIMEOUT, reason=f"passed {number} s"))
    clock.sleep(42.0)
    text = shown(progress)
    assert "6/10 trials" in text
    assert "42 s gone" in text
    assert "about 32 s left" in text  # four trials of eight seconds
    assert "5 failed" in text
    assert "running  threads=8" in text
    assert "passed 5 s" in text
    assert "passed 2 s" not in text  # only the last three
    assert "best     output_throughput 100.0  +0.0 % so far  #0 default" in text
    progress.close()
    assert "running" not in shown(progress)
    assert "left" not in shown(progress)


def test_a_lucky_measurement_of_the_default_is_no_gain() -> None:
    tally = Tally(make_task(), DEFAULT)
    tally.add(make_trial(0, DEFAULT, 130.0))
    assert tally.progress_text() == "1 trial"
    tally.add(make_trial(1, DEFAULT, 100.0, repeat=DEFAULT_AGAIN))
    assert tally.gain == 1.0
    tally.add(make_trial(2, DEFAULT.extend(threads=8), 230.0))
    assert tally.gain == 2.0  # over the median of the two


def test_long_names_do_not_break_narrow_terminals() -> None:
    progress = ProgressDisplay(make_task(trials=10), DEFAULT, console=quiet()[0], clock=VirtualClock(), live=False)
    progress.finished(make_trial(0, DEFAULT, 100.0))
    progress.finished(make_trial(1, DEFAULT.extend(noise=1), status=Status.CRASHED, reason="x" * 500))
    assert max(map(len, shown(progress, width=40).splitlines())) <= 40


def test_a_live_display_comes_and_goes() -> None:
    console, text = quiet(terminal=True)
    progress = ProgressDisplay(make_task(trials=2), DEFAULT, console=console, clock=VirtualClock())
    progress.phase("search")
    progress.finished(make_trial(0, DEFAULT, 100.0))
    progress.phase("final")
    progress.close()
    progress.close()
    assert "1/2 trials" in text.getvalue()
    assert "final" in text.getvalue()
    assert not any("live" in thread.name.lower() and thread.is_alive() for thread in threading.enumerate())


def test_a_live_display_tells_the_time_left_from_the_first_moment() -> None:
    with ProgressDisplay(with_budget(wall_s=480.0), DEFAULT, console=quiet(terminal=True)[0], clock=VirtualClock()) as progress:
        assert "about 8 m 00 s left" in shown(progress)


def test_closing_before_anything_happened() -> None:
    console, text = quiet(terminal=True)
    ProgressDisplay(make_task(), DEFAULT, console=console).close()
    assert text.getvalue() == ""


def test_many_threads_at_once() -> None:
    console, text = quiet(terminal=True)
    progress = ProgressDisplay(make_task(trials=400), DEFAULT, console=console, workers=4)
    progress.phase("search")

    def work(worker: int) -> None:
        for i in range(100):
            trial = make_trial(worker * 100 + i, DEFAULT.extend(noise=worker * 100 + i), 1.0 + i)
            progress.started(trial.proposal)
            progress.finished(trial)
            progress.render()

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads)
    progress.close()
    assert "400/400 trials" in text.getvalue()


def test_drawing_does_not_wait_for_a_thread_that_was_stopped_in_the_middle() -> None:
    """What a signal handler that prints would otherwise turn into a deadlock."""
    progress = ProgressDisplay(make_task(trials=4), DEFAULT, console=quiet()[0], clock=VirtualClock(), live=False)
    progress.finished(make_trial(0, DEFAULT, 100.0))
    before = shown(progress)
    held, done = threading.Event(), threading.Event()

    class Stopped(VirtualClock):
        def span_s(self) -> float:
            held.set()
            done.wait(60)
            return 0.0

    progress._clock = Stopped()  # `started` now stops with the lock held
    thread = threading.Thread(target=progress.started, args=(Proposal(config=DEFAULT),))
    thread.start()
    assert held.wait(60)
    assert shown(progress) == before
    done.set()
    thread.join(60)
    assert not thread.is_alive()


def test_the_final_shows_its_interval() -> None:
    progress = ProgressDisplay(make_task(trials=40), DEFAULT, console=quiet()[0], clock=VirtualClock(), final_trials=15, live=False)
    for trial in make_study(40):
        progress.finished(trial)
    text = shown(progress)
    assert "40/40 + final 15/15 trials" in text
    assert "in the final" in text
    assert re.search(r"\d\.\d\dx \(\d\.\d\dx to \d\.\d\dx\) in the final", text)


def test_a_final_with_more_contenders_than_expected_says_how_long_it_is() -> None:
    tally = Tally(make_task(trials=1), DEFAULT, final_trials=9, final_rounds=3)
    tally.add(make_trial(0, DEFAULT, 100.0))
    four = {"phase": "final", "round": 1, "field": ["a", "b", "c", "d"]}
    tally.add(make_trial(1, DEFAULT, 100.0, repeat=1, origin=four))
    assert tally.progress_text() == "1/1 + final 1/12 trials"
    later = {"phase": "final", "round": 4, "field": ["a", "b"]}  # of a study that went on searching
    tally.add(make_trial(2, DEFAULT, 100.0, repeat=4, origin=later))
    assert tally.progress_text() == "1/1 + final 1/6 trials"


def test_estimates_take_the_nearest_bound() -> None:
    tally = Tally(with_budget(trials=10, wall_s=1000.0), DEFAULT, workers=2, final_trials=4)
    assert tally.left_s(100.0) == pytest.approx(900.0)  # nothing measured yet: only the clock is known
    tally.add(make_trial(0, DEFAULT, 1.0))
    assert tally.left_s(100.0) == pytest.approx((9 + 4) * 8.0 / 2)
    assert tally.left_s(980.0) == pytest.approx(20.0)
    assert tally.left_s(5000.0) == 0.0
    assert tally.share(900.0) == pytest.approx(0.9)
    assert Tally(with_budget(), DEFAULT).left_s(1.0) is None
    assert Tally(with_budget(), DEFAULT).share(1.0) is None
    cost = Tally(with_budget(cost_s=80.0), DEFAULT)
    cost.add(make_trial(0, DEFAULT, 1.0))
    assert cost.left_s(0.0) == pytest.approx(72.0)
    assert cost.share(0.0) == pytest.approx(0.1)


def test_time_of_earlier_sittings_counts() -> None:
    tally = Tally(with_budget(wall_s=100.0), DEFAULT)
    tally.add(make_trial(0, DEFAULT, 1.0))
    tally.begin()
    assert tally.left_s(0.0) == pytest.approx(92.0)


def test_real_numbers_replace_simulated_ones() -> None:
    tally = Tally(make_task(trials=5), DEFAULT)
    assert tally.add(simulated(0, DEFAULT, 500.0))
    assert tally.add(make_trial(1, DEFAULT, 100.0))
    assert not tally.add(simulated(2, DEFAULT.extend(noise=1), 900.0))
    assert tally.best_value == 100.0
    assert tally.gain == pytest.approx(1.0)
    assert tally.searched == 1  # simulated answers are free once something real was measured


@pytest.mark.parametrize("live", [False, True])
def test_a_default_that_fails_is_announced_at_once_and_once(live: bool) -> None:
    console, text = quiet()
    with ProgressDisplay(make_task(trials=10), DEFAULT, console=console, clock=VirtualClock(), live=live) as progress:
        progress.phase("search")
        for number in range(2):
            progress.finished(make_trial(number, DEFAULT, status=Status.OOM_START, reason="no memory left", repeat=number))
    assert text.getvalue().count("the default does not run: oom_start: no memory left") == 1
