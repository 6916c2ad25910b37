"""Commands that cannot win any more are stopped: by the driver between and within runs, from outside where there is none."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_launching import BENCH, SERVER, assert_gone, execute

from autoscout.backends.command.backend import CommandBackend
from autoscout.core.config import Config
from autoscout.core.task import Direction, Task
from autoscout.core.to_beat import ToBeat
from autoscout.core.trial import Measurement, Proposal, Status
from autoscout.evaluate.profiler import Profiler, ProfilerOptions
from autoscout.execute.local import LocalExecutor, LocalOptions
from autoscout.space import Choice, Space

PYTHON = sys.executable
SPACE = Space([Choice("batch", [1, 2])])
BACKEND = CommandBackend(SPACE)
FAST = ToBeat(metric="tps", direction=Direction.MAXIMIZE, value=100.0, spread=0.02)


def task_of(direction: str = "minimize", **workload: Any) -> Task:
    return BACKEND.task({"workload": {"cwd": "{folder}", **workload}, "objective": {"direction": direction}})


def run(folder: Path, task: Task, goal: ToBeat) -> Measurement:
    return BACKEND.parse(execute(goal.told_to(BACKEND.render(Config(batch=2), task, 3)), folder), task)


def test_a_first_run_that_is_far_behind_is_the_last(tmp_path: Path) -> None:
    task = task_of(
        direction="maximize",
        serve=[PYTHON, "server.py", "{port}", "fine"],
        bench=f"{PYTHON} bench.py {{port}} '' {{batch}}",
        files={"server.py": SERVER, "bench.py": BENCH},
        metrics={"tps": r"regex:tps: (\d+)"},
        health="http://127.0.0.1:{port}/health",
        repeats=3,
    )
    done = run(tmp_path / "a", task, FAST)
    assert done.status is Status.BOUNDED, done
    assert done.bounds == {"tps": pytest.approx(10 * 1.06)}
    assert done.metrics["tps"] == 10
    assert done.reason == "tps is at most 10.6, and 100 is to beat"
    assert done.spent.keys() == {"start_s", "measure_s"}
    assert_gone(tmp_path / "a")
    close = run(tmp_path / "b", task, replace(FAST, value=10.3))
    assert (close.status, len(close.samples["tps"])) == (Status.OK, 3), close
    assert close.bounds == {}


def test_a_run_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    task = task_of(command=f"{PYTHON} -c 'import time; time.sleep(300)' {{batch}}", repeats=2)
    done = run(tmp_path, task, ToBeat(metric="wall_s", direction=Direction.MINIMIZE, value=0.5, spread=0.01))
    assert done.status is Status.BOUNDED, done
    assert 0.5 < done.bounds["wall_s"] < 100
    assert done.metrics == {}


def test_a_failure_is_no_bound(tmp_path: Path) -> None:
    task = task_of(command="echo tps: 5 {batch}; exit 3", direction="maximize", metrics={"tps": r"regex:tps: (\d+)"}, repeats=2)
    done = run(tmp_path, task, FAST)
    assert (done.status, done.bounds) == (Status.CRASHED, {})


def measured(folder: Path, task: Task, goal: ToBeat, *, stop_early: bool = True) -> Measurement:
    with LocalExecutor(LocalOptions(folder=folder, grace_s=0.2)) as executor:
        profiler = Profiler(BACKEND, executor, task, SPACE, ProfilerOptions(dirty_repeats=0, stop_early=stop_early))
        return profiler.evaluate([Proposal(config=Config(batch=2), to_beat=goal)])[0]


def test_a_single_run_is_ended_from_outside(tmp_path: Path) -> None:
    task = task_of(command="sleep 300; echo {batch}", metrics={"time_ms": {"wall": True, "scale": 1000}})
    goal = ToBeat(metric="time_ms", direction=Direction.MINIMIZE, value=500.0)
    assert BACKEND.lost_after_s(task, goal) == 0.5
    done = measured(tmp_path, task, goal)
    assert done.status is Status.BOUNDED, done
    assert 500 <= done.bounds["time_ms"] < 100_000
    assert "is to beat" in done.reason
    assert 0.5 <= done.cost_s < 100


def test_a_study_may_measure_everything_to_its_end(tmp_path: Path) -> None:
    task = task_of(command='sleep 0.3; echo "{batch} [$AUTOSCOUT_TO_BEAT]"', metrics={"wall_s": "wall"})
    goal = ToBeat(metric="wall_s", direction=Direction.MINIMIZE, value=0.01)
    assert measured(tmp_path, task, goal, stop_early=False).ok


def test_where_the_time_says_nothing_a_run_is_left_alone() -> None:
    slow = ToBeat(metric="wall_s", direction=Direction.MINIMIZE, value=1.0)
    plain = task_of(command="echo score: {batch}", metrics={"score": r"regex:score: (\d+)"})
    assert BACKEND.lost_after_s(plain, ToBeat(metric="score", direction=Direction.MINIMIZE, value=1.0)) is None
    assert BACKEND.lost_after_s(plain, slow) == 1.0, "every command has a wall time"
    assert BACKEND.lost_after_s(plain, replace(slow, direction=Direction.MAXIMIZE)) is None
    assert BACKEND.lost_after_s(plain, replace(slow, value=None)) is None
    assert BACKEND.lost_after_s(task_of(command="echo {batch}", repeats=2), slow) is None, "the driver stops by itself"
