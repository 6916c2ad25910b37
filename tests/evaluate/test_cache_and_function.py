"""Answers from memory, and functions as systems."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import pytest
from _systems import Behaviours, proposal, task

from autoscout.core.config import Config
from autoscout.core.errors import Infeasible, LaunchError
from autoscout.core.trial import Fidelity, Measurement, Proposal, Status, Trial
from autoscout.evaluate.cache import CachedEvaluator
from autoscout.evaluate.function import FunctionEvaluator
from autoscout.evaluate.profiler import ProfilerOptions
from autoscout.execute.inline import InlineExecutor
from autoscout.execute.local import LocalExecutor, LocalOptions
from autoscout.testing.evaluator import PATIENCE_S


@dataclass
class Counting:
    """Answers with x, counts what it is asked, and waits at a gate if there is one."""

    slots: int = 4
    asked: list[Proposal] = field(default_factory=list)
    doubts: list[Proposal] = field(default_factory=list)
    gate: threading.Event | None = None
    status: Status = Status.OK
    broken: bool = False

    def evaluate(self, proposals: Sequence[Proposal]) -> list[Measurement]:
        self.asked += proposals
        if self.gate:
            assert self.gate.wait(PATIENCE_S)
        if self.broken:
            raise LaunchError("no engine")
        return [Measurement(status=self.status, metrics={"time_s": float(str(one.config["x"]))}, cost_s=7.0) for one in proposals]

    def recheck(self) -> list[Proposal]:
        return self.doubts

    def cancel(self) -> None:
        self.status = Status.ABORTED
        if self.gate:
            self.gate.set()


def test_the_same_is_not_asked_twice() -> None:
    inner = Counting()
    cached = CachedEvaluator(inner)
    first = cached.evaluate([proposal(1), proposal(2), proposal(1)])
    again = cached.evaluate([proposal(2), proposal(3), proposal(1, repeat=1)])
    assert [one.config["x"] for one in inner.asked] == [1, 2, 3, 1]
    assert [one.metrics["time_s"] for one in [*first, *again]] == [1, 2, 1, 2, 3, 1]
    assert [one.cost_s for one in [*first, *again]] == [7, 7, 0, 0, 7, 7]
    assert [one.conditions.get("cached") for one in again] == [1.0, None, None]


def test_trials_of_the_same_fidelity_are_known_already() -> None:
    def trial(x: int, **measured: object) -> Trial:
        base = {"status": Status.OK, "metrics": {"time_s": 50.0}, "cost_s": 3.0}
        return Trial(proposal=proposal(x), measurement=Measurement(**{**base, **measured}))  # type: ignore[arg-type]

    stored = [
        trial(1),
        trial(2, fidelity=Fidelity.SIMULATED),
        trial(3, status=Status.ABORTED),
        trial(4, status=Status.CRASHED, metrics={}),
    ]
    inner = Counting()
    answers = CachedEvaluator(inner, stored).evaluate([proposal(x) for x in (1, 2, 3, 4)])
    assert [one.config["x"] for one in inner.asked] == [2, 3]
    assert answers[0].metrics == {"time_s": 50.0}
    assert answers[0].cost_s == 0.0
    assert answers[3].status is Status.CRASHED


def test_threads_that_ask_the_same_share_one_answer() -> None:
    inner = Counting(gate=threading.Event())
    cached = CachedEvaluator(inner)
    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(cached.evaluate, [proposal(5)]) for _ in range(4)]
        assert inner.gate is not None
        inner.gate.set()
        found = [answer.result(PATIENCE_S)[0] for answer in answers]
    assert len(inner.asked) == 1
    assert sorted(one.cost_s for one in found) == [0, 0, 0, 7]


def test_errors_reach_everybody_and_are_not_remembered() -> None:
    inner = Counting(broken=True)
    cached = CachedEvaluator(inner)
    with pytest.raises(LaunchError):
        cached.evaluate([proposal(1)])
    inner.broken = False
    assert cached.evaluate([proposal(1)])[0].ok


def test_aborted_and_doubted_answers_are_asked_again() -> None:
    inner = Counting()
    cached = CachedEvaluator(inner)
    cached.evaluate([proposal(1)])
    inner.doubts = [proposal(1)]
    assert cached.recheck() == [proposal(1)]
    cached.evaluate([proposal(1)])
    cached.cancel()
    assert cached.evaluate([proposal(2)])[0].status is Status.ABORTED
    inner.status = Status.OK
    assert cached.evaluate([proposal(2)])[0].ok
    assert [one.config["x"] for one in inner.asked] == [1, 1, 2, 2]


# --- functions -------------------------------------------------------------------------------------------------------


@pytest.fixture
def inline() -> Iterator[InlineExecutor]:
    with InlineExecutor() as executor:
        yield executor


def evaluate(function: object, executor: InlineExecutor | LocalExecutor, **options: object) -> Measurement:
    chosen = ProfilerOptions(dirty_repeats=0, **options)  # type: ignore[arg-type]
    return FunctionEvaluator(function, executor, task(), Behaviours(), chosen).evaluate([proposal(4)])[0]  # type: ignore[arg-type]


def test_a_number_is_the_objective_and_a_dict_all_metrics(inline: InlineExecutor) -> None:
    assert evaluate(lambda config: config["x"] * 2, inline).metrics == {"time_s": 8.0}
    assert evaluate(lambda config: np.float32(1.5), inline).metrics == {"time_s": 1.5}
    assert evaluate(lambda config: {"time_s": True, "extra": 2}, inline).metrics == {"time_s": 1.0, "extra": 2.0}


def test_what_is_no_number_is_named(inline: InlineExecutor) -> None:
    measured = evaluate(lambda config: {"time_s": 1.0, "extra": "12"}, inline)
    assert measured.status is Status.WRONG_OUTPUT
    assert "extra" in measured.reason
    assert "'12'" in measured.reason


def test_an_exception_is_a_crash_with_its_traceback(inline: InlineExecutor) -> None:
    def broken(config: Config) -> float:
        return {}["gone"]  # type: ignore[no-any-return, index]

    measured = evaluate(broken, inline)
    assert (measured.status, measured.reason) == (Status.CRASHED, "KeyError: 'gone'")
    assert "in broken" in measured.log_tail


def test_a_function_has_a_limit_too(inline: InlineExecutor) -> None:
    release = threading.Event()
    measured = evaluate(lambda config: float(release.wait(3600)), inline, limit_s=0.2)
    release.set()
    assert measured.status is Status.TIMEOUT


def test_functions_are_repeated_like_systems(inline: InlineExecutor) -> None:
    values = iter([5.0, 1.0, 3.0])
    measured = evaluate(lambda config: next(values), inline, repeats=3)
    assert measured.metrics == {"time_s": 3.0}
    assert measured.samples == {"time_s": (5.0, 1.0, 3.0)}


def segfault(config: Config) -> float:
    import ctypes

    ctypes.string_at(0)
    return 1.0


def test_a_function_that_kills_its_process_is_one_crashed_trial() -> None:
    with LocalExecutor(LocalOptions()) as executor:
        measured = evaluate(segfault, executor)
    assert (measured.status, measured.reason) == (Status.CRASHED, "the function ended its process (signal 11)")


def test_a_function_that_cannot_leave_this_process_is_refused_with_advice() -> None:
    with LocalExecutor(LocalOptions()) as executor, pytest.raises(LaunchError, match="top level of a module"):
        evaluate(lambda config: 1.0, executor)


def test_infeasible_is_a_failure_of_a_kind() -> None:
    assert Infeasible("too big").status is Status.INVALID
    copy = pickle.loads(pickle.dumps(Infeasible("too big", status="oom_run")))
    assert (copy.reason, copy.status) == ("too big", Status.OOM_RUN)
    with pytest.raises(ValueError, match="cannot be 'ok'"):
        Infeasible(status=Status.OK)
