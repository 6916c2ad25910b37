"""Python as people use it: interrupted, watched, bounded, and with names that are misspelt."""

from __future__ import annotations

import inspect
import io
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import get_type_hints

import pytest

import autoscout
from autoscout.analysis.tally import Tally
from autoscout.api import Options, optimize
from autoscout.core.clock import VirtualClock
from autoscout.core.errors import ConfigError
from autoscout.core.origin import Phase
from autoscout.report.progress_line import ProgressLine
from autoscout.study.budget import Stop
from autoscout.study.final import Finals

ROOT = Path(__file__).parents[2]
SLOW = """
import sys, time, autoscout

def slow(config):
    if config["x"] >= 3:
        print("waits", flush=True)
        time.sleep(60)
    return float(config["x"])

outcome = autoscout.minimize(slow, {"x": list(range(10))}, trials=10, searcher="grid", MORE)
print(outcome.stop, len(outcome.trials), outcome.best, flush=True)
"""


def interrupted(program: str, times: int = 1) -> tuple[int, str, str]:
    """Runs a program and sends it Ctrl-C once it waits; again when it has said that it was interrupted."""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "waits\n"
        process.send_signal(signal.SIGINT)
        heard = ""
        for _ in range(times - 1):
            heard += process.stderr.readline()  # two signals at once would count as one
            process.send_signal(signal.SIGINT)
        said, errors = process.communicate(timeout=60)
    return process.returncode, said, heard + errors


def test_ctrl_c_returns_the_outcome_so_far() -> None:
    code, said, errors = interrupted(SLOW.replace("MORE", ""))
    assert (code, said) == (0, "interrupted 3 Config(x=0)\n"), errors
    assert "Traceback" not in errors
    assert "Ctrl-C again" in errors


def test_ctrl_c_returns_the_outcome_of_a_campaign(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("\n".join(SLOW.splitlines()[:8]))
    program = f"""
import autoscout
campaign = dict(system="function", workload=dict(function={str(tmp_path / "slow.py")!r} + ":slow"), search=dict(searcher="grid"),
                space=dict(knobs=dict(x=dict(range=[0, 9]))), budget=dict(trials=10))
outcome = autoscout.tune(campaign, {str(tmp_path)!r})
print(outcome.stop, len(outcome.trials) > 0, outcome.folder.page.exists())
"""
    code, said, errors = interrupted(program)
    assert (code, said) == (0, "interrupted True True\n"), errors


def test_a_second_ctrl_c_raises() -> None:
    held = SLOW.replace("MORE", "callbacks=[lambda outcome, trial: print('waits', flush=True) or time.sleep(60)]")
    code, said, errors = interrupted(held.replace(">= 3", ">= 30"), times=2)
    assert code != 0
    assert said == ""
    assert "KeyboardInterrupt" in errors


def test_a_handler_of_the_programs_own_is_left_alone() -> None:
    def own(number: int, frame: object) -> None: ...  # a program that ends in its own way

    before = signal.signal(signal.SIGINT, own)
    try:
        autoscout.minimize(
            lambda config: 1.0, {"x": [1]}, trials=1, callbacks=[lambda outcome, trial: signal.getsignal(signal.SIGINT) is not own]
        )
        assert signal.getsignal(signal.SIGINT) is own
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_timeout_ends_the_study() -> None:
    began_s = time.monotonic()
    outcome = autoscout.minimize(lambda config: time.sleep(0.05) or float(config["x"]), {"x": range(1000)}, timeout=1.5, searcher="random")
    assert outcome.stop is Stop.WALL
    assert time.monotonic() - began_s < 20
    assert len(outcome.trials) > 3


def test_patience_ends_the_study() -> None:
    outcome = autoscout.minimize(lambda config: 1.0, {"x": range(1000)}, patience=5, searcher="random")
    assert (outcome.stop, len(outcome.trials)) == (Stop.STALE, 6)


def test_callbacks_see_the_outcome_so_far_and_may_end_the_study(tmp_path: Path) -> None:
    heard: list[tuple[int, int, object]] = []

    def hear(outcome: autoscout.Outcome, trial: autoscout.Trial) -> bool:
        heard.append((len(outcome.trials), trial.number, outcome.value))
        return len(heard) == 3

    how = {"folder": tmp_path / "study", "searcher": "grid"}
    outcome = autoscout.minimize(lambda config: 9.0 - config["x"], {"x": list(range(10))}, 8, callbacks=[hear], **how)
    assert heard == [(1, 0, 9.0), (2, 1, 8.0), (3, 2, 7.0)]
    assert outcome.stop is Stop.INTERRUPTED
    autoscout.minimize(lambda config: 9.0 - config["x"], {"x": list(range(10))}, 5, callbacks=[hear], **how)
    assert [number for _, number, _ in heard] == [0, 1, 2, 3, 4], "trials of the earlier run were reported then"


def test_an_error_of_a_callback_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        autoscout.minimize(lambda config: 1.0, {"x": range(9)}, 3, callbacks=[lambda outcome, trial: 1 // 0 == 1])


def test_progress_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    autoscout.minimize(lambda config: float(config["x"]), {"x": range(9)}, 3, progress=True)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    last = said.err.rpartition("\r")[2]
    assert last.startswith("[####################]  3/3 trials  ")
    assert "best value 0" in last
    autoscout.minimize(lambda config: float(config["x"]), {"x": range(9)}, 3)
    assert capsys.readouterr().err == ""


def test_a_shorter_line_blanks_the_longer_one() -> None:
    stream, clock = io.StringIO(), VirtualClock()
    line = ProgressLine(Tally(optimize_task(), autoscout.Config(x=0)), stream, clock)
    clock.sleep(3599)
    line.phase("search")
    clock.sleep(1)
    line.phase("final")
    line.close()
    line.close()
    first, second = stream.getvalue().removeprefix("\r").removesuffix("\n").split("\r")
    assert len(second) >= len(first.rstrip())


def optimize_task() -> autoscout.Task:
    return autoscout.Task(system="toy", objective=autoscout.Objective(metric="value"))


def test_noisy_functions_are_measured_in_rounds() -> None:
    outcome = autoscout.minimize(lambda config: 1.0 + config["x"], {"x": [3, 2, 1]}, 3, rounds=3)
    assert sum(trial.proposal.origin.phase is Phase.FINAL for trial in outcome.trials) >= 6
    assert outcome.setup.finals.rounds == 3
    with pytest.raises(ConfigError, match="stands in `finals`"):
        autoscout.minimize(lambda config: 1.0, {"x": [1]}, 3, rounds=3, finals=Finals())


def test_knobs_may_be_described_as_in_a_campaign() -> None:
    space = {"x": {"range": [1, 64], "log": True, "default": 8}, "y": {"type": "bool", "when": "x > 4"}, "z": [1, 2]}
    outcome = autoscout.minimize(lambda config: float(config["x"]), space, 12)
    assert outcome.trials[0].config == autoscout.Config(x=8, y=False, z=1)
    assert outcome.setup.space.knobs["x"].log


def test_an_outcome_prints_as_a_few_lines(tmp_path: Path) -> None:
    knobs = {f"knob_{number}": [1, 2] for number in range(200)}
    outcome = autoscout.minimize(lambda config: 0.25 * config["knob_1"], knobs, 5, searcher="random", folder=tmp_path / "study")
    assert len(repr(outcome)) < 1000
    assert repr(outcome).splitlines()[0] == "Outcome of 'function': 5 trials; trial budget used"
    assert "value  0.2500" in repr(outcome)
    assert repr(autoscout.minimize(lambda config: 1 / 0, {"x": [1, 2]}, 2)).splitlines()[1:] == ["  best  None", "  value  -"]


def test_the_keywords_are_those_of_optimize() -> None:
    keywords = {name for name, each in inspect.signature(optimize).parameters.items() if each.kind is each.KEYWORD_ONLY}
    assert set(get_type_hints(Options)) == keywords
    for function in (autoscout.minimize, autoscout.maximize):
        assert list(inspect.signature(function).parameters)[:4] == ["function", "space", "trials", "metric"]
        assert set(inspect.signature(function).parameters) == keywords | {"function", "space", "trials", "metric"}
    with pytest.raises(TypeError, match="wrokers"):
        autoscout.minimize(lambda config: 1.0, {"x": [1]}, 1, wrokers=2)


@pytest.mark.slow
def test_a_misspelt_keyword_is_refused_by_mypy(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    lines = ["import autoscout", "def f(config: autoscout.Config) -> float: return 1 / config.whole('x')"]
    lines += ["autoscout.minimize(f, {'x': [1]}, trials=1, wrokers=2)", "autoscout.maximize(f, {'x': [1]}, trials=1, workers='2')"]
    lines += ["autoscout.minimize(f, {'x': [1]}, 1, workers=2, timeout=3, callbacks=[lambda outcome, trial: None])"]
    (tmp_path / "snippet.py").write_text("\n".join(lines))
    words = [sys.executable, "-m", "mypy", str(tmp_path / "snippet.py")]  # with our settings, so that what is known of our code counts
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=280)
    errors = [line.partition("snippet.py")[2] for line in done.stdout.splitlines() if "snippet.py:" in line and " error: " in line]
    assert [line.split(":")[1] for line in errors] == ["3", "4"], done.stdout + done.stderr
    assert 'Unexpected keyword argument "wrokers"' in errors[0]
