"""What every tracker must do. Subclass `TrackerSuite` in a test module and give it the fixtures `make` and `read`:

    class TestMyTracker(TrackerSuite):
        @pytest.fixture
        def make(self, tmp_path):
            return lambda: MyTracker(MyOptions(path=str(tmp_path / "there")))

        @pytest.fixture
        def read(self, tmp_path):
            return lambda: [(trial["number"], trial["status"], trial["metrics"]) for trial in what_is_there(tmp_path / "there")]

`make` builds the tracker anew, always for the same place, as a resumed study does. `read` reads back, by the reader of whoever owns that
place, every trial that is shown there.

Needs no pytest itself; the methods are plain functions of the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace

from autoscout.core.state import State
from autoscout.core.task import Direction, Goal
from autoscout.core.tracker import TrackedKnob, TrackedResult, TrackedStudy, TrackedTrial, Tracker
from autoscout.core.trial import Status

Make = Callable[[], Tracker]
Read = Callable[[], list[tuple[int, str, Mapping[str, float]]]]
"""Number, status and metrics of every trial that is shown."""

BEGUN_S = 1_700_000_000.0
STUDY = TrackedStudy(
    name="serving at night",
    key="0123456789ab",
    system="toy",
    goals=(Goal(metric="output_throughput", direction=Direction.MAXIMIZE), Goal(metric="p95_ttft_ms")),
    settings={"system": "toy", "budget.trials": 12, "goal.slo": '["p95_ttft_ms<=500"]', "search.warm_start": True, "workload.rate": 0.5},
    knobs={
        "threads": TrackedKnob(values=(1, 2, 4, 8)),
        "mode": TrackedKnob(values=("a", "b")),
        "fast": TrackedKnob(values=(False, True)),
        "share": TrackedKnob(values=(0.1, 0.2, 0.3)),
        "bytes": TrackedKnob(ends=(1, 4096), log=True),
    },
    begun_s=BEGUN_S,
)


def trial(number: int, status: Status = Status.OK) -> TrackedTrial:
    """A trial of that study; a failure has no metrics, a bounded one what it had reached."""
    metrics = {"output_throughput": 100.0 + number, "p95_ttft_ms": 20.5, "wall_s": 1.25} if status is Status.OK else {}
    metrics |= {"output_throughput": 3.0} if status is Status.BOUNDED else {}
    return TrackedTrial(
        number=number,
        name=f"#{number} hybrid",
        config={"threads": 4, "mode": "a", "fast": True, "share": 0.2} if number % 2 else {"threads": 8, "mode": "b", "bytes": 300},
        status=status,
        metrics=metrics,
        goals={name: metrics[name] for name in ("output_throughput", "p95_ttft_ms")} if status is Status.OK else {},
        best={"output_throughput": 100.0 + number, "p95_ttft_ms": 20.5} if status is Status.OK else {},
        samples={"loss": (3.0, 2.0, 1.5), "step_s": (0.5, 0.4)} if status is Status.OK else {},
        violations={"p95_ttft_ms<=500": -479.5} if status is Status.OK else {},
        notes={"by": "hybrid", "fidelity": "measured", "cost_s": 1.5, **({"reason": "CUDA: 内存不足"} if status.failed else {})},
        begun_s=BEGUN_S + number,
        ended_s=BEGUN_S + number + 0.5,
    )


RESULT = TrackedResult(
    state=State.FINISHED,
    metrics={"gain": 1.25, "gain_low": 1.1, "gain_high": 1.4, "default/output_throughput": 80.0},
    notes={"verdict": "gain", "answer.threads": 8, "answer.mode": "b"},
    files={"report.html": "<!doctype html><p>réport</p>\n", "best/run.sh": "#!/bin/sh\n"},
    ended_s=BEGUN_S + 60,
)


class TrackerSuite:
    """The contract of a tracker."""

    def test_it_shows_every_trial_with_its_status_and_its_metrics(self, make: Make, read: Read) -> None:
        trials = [trial(0), trial(1, Status.CRASHED), trial(2, Status.BOUNDED), trial(3, Status.OOM_RUN), trial(4)]
        with closing(make()) as tracker:
            place = tracker.begin(STUDY)
            assert place.strip()
            assert not set(tracker.sent())
            for one in trials:
                tracker.add(one)
            tracker.end(RESULT)
        rows = {number: (status, dict(metrics)) for number, status, metrics in read()}
        assert rows.keys() == {0, 1, 2, 3, 4}
        for one in trials:
            status, metrics = rows[one.number]
            assert status == one.status.value
            assert {name: metrics.get(name) for name in one.metrics} == dict(one.metrics)
            assert one.status is Status.OK or "p95_ttft_ms" not in metrics

    def test_a_resumed_study_continues_where_it_was(self, make: Make, read: Read) -> None:
        places = []
        for number in range(3):
            with closing(make()) as tracker:
                places.append(tracker.begin(STUDY))
                assert set(tracker.sent()) == set(range(number))
                tracker.add(trial(number))
                tracker.end(replace(RESULT, metrics={**RESULT.metrics, "gain": 1.0 + number}, ended_s=RESULT.ended_s + number))
        assert len(set(places)) == 1, "the same run of the study"
        assert sorted(number for number, _, _ in read()) == [0, 1, 2]

    def test_what_was_not_ended_is_continued_too(self, make: Make, read: Read) -> None:
        tracker = make()
        tracker.begin(STUDY)
        tracker.add(trial(0))
        tracker.close()
        with closing(make()) as tracker:
            tracker.begin(STUDY)
            if 0 not in tracker.sent():
                tracker.add(trial(0))
            tracker.add(trial(1))
            tracker.end(RESULT)
        assert sorted(number for number, _, _ in read()) == [0, 1]

    def test_another_study_of_the_same_name_is_another(self, make: Make, read: Read) -> None:
        for key in (STUDY.key, "ba9876543210"):
            with closing(make()) as tracker:
                tracker.begin(replace(STUDY, key=key))
                assert not set(tracker.sent())
                tracker.add(trial(0))
                tracker.end(RESULT)
        assert [number for number, _, _ in read()] == [0, 0]

    def test_a_study_without_a_trial_and_one_with_strange_names(self, make: Make, read: Read) -> None:
        name = "prüfung: a/b? 100 %"
        strange = replace(
            STUDY,
            name=name,
            goals=(Goal(metric="latency ms (p99.9)"),),
            settings={f"workload.{'long' * 40}": "x" * 4_000, "täglich": "ja"},
            knobs={"--flag-x.y": TrackedKnob(values=("", "a b", "1"))},
        )
        with closing(make()) as tracker:
            tracker.begin(strange)
            tracker.end(replace(RESULT, state=State.INTERRUPTED, metrics={}, notes={}, files={}))
        with closing(make()) as tracker:
            tracker.begin(strange)
            tracker.add(
                TrackedTrial(
                    number=0,
                    name="#0 default",
                    config={"--flag-x.y": "a b"},
                    status=Status.OK,
                    metrics={"latency ms (p99.9)": 5.0},
                    goals={"latency ms (p99.9)": 5.0},
                    begun_s=BEGUN_S,
                    ended_s=BEGUN_S + 1,
                )
            )
            tracker.end(RESULT)
        ((number, status, metrics),) = read()
        assert (number, status, list(metrics.values())[:1]) == (0, "ok", [5.0])


__all__ = ["RESULT", "STUDY", "TrackerSuite", "trial"]
