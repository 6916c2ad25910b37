"""Functions as systems."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from _systems import Behaviours, proposal, task
from autoscout.backends.function import FunctionBackend
from autoscout.core.config import Config
from autoscout.core.errors import Infeasible, LaunchError
from autoscout.core.trial import Measurement, Status
from autoscout.evaluate.profiler import Profiler, ProfilerOptions
from autoscout.execute.inline import InlineExecutor
from autoscout.execute.local import LocalExecutor, LocalOptions


@pytest.fixture
def inline() -> Iterator[InlineExecutor]:
    with InlineExecutor() as executor:
        yield executor


def evaluate(function: object, executor: InlineExecutor | LocalExecutor, **options: object) -> Measurement:
    chosen = ProfilerOptions(dirty_repeats=0, **options)  # type: ignore[arg-type]
    return Profiler(FunctionBackend(function=function), executor, task(), Behaviours(), chosen).evaluate([proposal(4)])[0]  # type: ignore[arg-type]


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
