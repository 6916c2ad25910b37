"""Several proposals in one launch: who shares, what each is told, and what becomes of those that the launch did not come to."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from _systems import Behaviours, Script, proposal, task
from autoscout.core.clock import VirtualClock
from autoscout.core.config import Config
from autoscout.core.errors import LaunchError
from autoscout.core.launch import Completed, Launch, Tenant
from autoscout.core.protocols import Executor
from autoscout.core.task import Task
from autoscout.core.trial import Measurement, Proposal, Status
from autoscout.evaluate.profiler import MAX_NOISY_TRIALS, Profiler, ProfilerOptions

FOUR = ProfilerOptions(dirty_repeats=0, per_process=4)


@dataclass(eq=False)
class Ended:
    completed: Completed

    def done(self) -> bool:
        return True

    def result(self, timeout_s: float | None = None) -> Completed:
        return self.completed

    def cancel(self) -> None:
        pass


def served(launch: Launch) -> Completed:
    """Every configuration of a launch took one second."""
    xs = json.loads(launch.files["xs"])
    return Completed(returncode=0, wall_s=float(len(xs)), outputs={"out": json.dumps(xs)})


@dataclass
class Machine(Executor):
    """An executor whose launches end at once, as told."""

    ends: Callable[[Launch], Completed] = served
    launches: list[Launch] = field(default_factory=list)
    slots: int = 1

    def submit(self, launch: Launch) -> Ended:
        self.launches.append(launch)
        return Ended(self.ends(launch))

    def close(self) -> None:
        pass

    @property
    def shared(self) -> list[list[float | str]]:
        return [json.loads(launch.files["xs"]) for launch in self.launches]


class Sharing(Script):
    """A backend whose numbers share a process, those from 10 on another one; texts need one of their own."""

    shares_process = True

    def process_of(self, config: Config, task: Task) -> Config | None:
        x = config["x"]
        return None if isinstance(x, str) else Config(large=isinstance(x, (int, float)) and x >= 10)

    def render(self, config: Config, task: Task, seed: int) -> Launch:
        return self.render_together([config], task, seed)

    def render_together(self, configs: Sequence[Config], task: Task, seed: int) -> Launch:
        return Launch(argv=("program",), files={"xs": json.dumps([config["x"] for config in configs])}, limit_s=10.0 * len(configs))

    def divide(self, completed: Completed, count: int) -> list[Completed | None]:
        xs = json.loads(completed.outputs.get("out", "[]"))
        parts: list[Completed | None] = [
            replace(completed, outputs={"out": json.dumps([x])}, wall_s=1.0, timed_out=False, cancelled=False) for x in xs
        ]
        if len(parts) < count:
            parts.append(replace(completed, outputs={}, wall_s=completed.wall_s - len(xs)))
        return [*parts, *([None] * (count - len(parts)))]

    def parse(self, completed: Completed, task: Task) -> Measurement:
        if not completed.outputs:
            return Measurement(status=Status.CRASHED, reason="it broke")
        return Measurement(status=Status.OK, metrics={"time_s": float(json.loads(completed.outputs["out"])[0])})


def evaluate(machine: Machine, proposals: Sequence[Proposal], options: ProfilerOptions = FOUR) -> list[Measurement]:
    return Profiler(Sharing(), machine, task(), Behaviours(), options, VirtualClock()).evaluate(proposals)


def test_those_with_the_same_process_share_a_launch_in_their_order() -> None:
    machine = Machine()
    measured = evaluate(machine, [proposal(x) for x in (3, 11, 2, 12, 5)])
    assert machine.shared == [[3, 2, 5], [11, 12]]
    assert [one.metrics["time_s"] for one in measured] == [3.0, 11.0, 2.0, 12.0, 5.0], "answers stay in the order of the questions"
    assert [one.cost_s for one in measured] == [1.0] * 5, "each its own share"
    assert [one.conditions["per_process"] for one in measured] == [3.0, 2.0, 3.0, 2.0, 3.0]
    assert [launch.limit_s for launch in machine.launches] == [30.0, 20.0]


def test_a_launch_takes_no_more_than_it_may() -> None:
    machine = Machine()
    evaluate(machine, [proposal(x) for x in range(2, 8)], replace(FOUR, per_process=2))
    assert machine.shared == [[2, 3], [4, 5], [6, 7]]


def test_repeats_texts_and_what_is_not_allowed_stay_alone() -> None:
    machine = Machine()
    repeated = [proposal(2, repeat=1), proposal(3, repeat=1), proposal(4), proposal("9"), proposal(5)]
    assert all(one.ok for one in evaluate(machine, repeated))
    assert machine.shared == [[2], [3], [4, 5], ["9"]], "a final round is there to be independent"
    once = Machine()
    evaluate(once, [proposal(2), proposal(3)], ProfilerOptions(dirty_repeats=0))
    assert once.shared == [[2], [3]], "nobody asked for sharing"
    refused = evaluate(Machine(), [proposal("forbidden"), proposal(2), proposal(3)])
    assert [one.status for one in refused] == [Status.INVALID, Status.OK, Status.OK]


def test_what_a_launch_did_not_come_to_is_measured_by_itself() -> None:
    def breaks(launch: Launch) -> Completed:
        xs = json.loads(launch.files["xs"])
        return served(launch) if len(xs) == 1 else Completed(returncode=1, wall_s=2.5, outputs={"out": json.dumps(xs[:1])})

    machine = Machine(breaks)
    measured = evaluate(machine, [proposal(x) for x in (2, 3, 4, 5)])
    assert machine.shared == [[2, 3, 4, 5], [4], [5]]
    assert [one.status for one in measured] == [Status.OK, Status.CRASHED, Status.OK, Status.OK], "only the one under way has failed"
    assert [one.cost_s for one in measured] == [1.0, 1.5, 1.0, 1.0]


def test_a_launch_that_was_cancelled_keeps_what_it_had_measured() -> None:
    def cancelled(launch: Launch) -> Completed:
        xs = json.loads(launch.files["xs"])
        return Completed(returncode=None, cancelled=True, wall_s=1.5, outputs={"out": json.dumps(xs[:1])} if len(xs) > 1 else {})

    measured = evaluate(Machine(cancelled), [proposal(x) for x in (2, 3, 4)])
    assert [one.status for one in measured] == [Status.OK, Status.ABORTED, Status.ABORTED]


def test_what_the_others_left_no_time_for_is_measured_by_itself() -> None:
    def late(launch: Launch) -> Completed:
        xs = json.loads(launch.files["xs"])
        return (
            served(launch) if len(xs) == 1 else Completed(returncode=None, timed_out=True, wall_s=3.0, outputs={"out": json.dumps(xs[:2])})
        )

    machine = Machine(late)
    measured = evaluate(machine, [proposal(x) for x in (2, 3, 4)], replace(FOUR, limit_s=3.0))
    assert machine.shared == [[2, 3, 4], [4]]
    assert [one.status for one in measured] == [Status.OK] * 3, "it had one second of its three"

    def hangs(launch: Launch) -> Completed:
        several = len(json.loads(launch.files["xs"])) > 1
        return Completed(returncode=None, timed_out=True, wall_s=3.0) if several else served(launch)

    assert [one.status for one in evaluate(Machine(hangs), [proposal(2), proposal(3)])] == [Status.TIMEOUT, Status.OK]


def test_a_worker_runs_one_launch_at_a_time() -> None:
    running, most, lock = [0], [0], threading.Lock()

    @dataclass(eq=False)
    class Waits(Ended):
        def result(self, timeout_s: float | None = None) -> Completed:
            with lock:
                running[0] += 1
                most[0] = max(most[0], running[0])
            time.sleep(0.02)
            with lock:
                running[0] -= 1
            return self.completed

    class Wide(Machine):
        def submit(self, launch: Launch) -> Ended:
            return Waits(super().submit(launch).completed)

    evaluate(Wide(slots=4), [proposal(x) for x in (2, 11, "5", "6")])
    assert most == [1], "four launches of one worker, though the executor has four slots"
    most[0] = 0
    evaluate(Wide(slots=4), [proposal(x) for x in (2, 3, 4, 5, 11, 12, 13, 14)])
    assert most == [2], "handed over for two workers"


def test_a_disturbed_launch_is_repeated_one_by_one() -> None:
    def busy(launch: Launch) -> Completed:
        several = len(json.loads(launch.files["xs"])) > 1
        return replace(served(launch), conditions={"cpu_pressure": 0.9, "other_cpu_share": 0.5} if several else {})

    machine = Machine(busy)
    measured = evaluate(machine, [proposal(2), proposal(3)], ProfilerOptions(dirty_repeats=1, per_process=4))
    assert machine.shared == [[2, 3], [2], [3]]
    assert all(one.ok and "dirty" not in one.conditions for one in measured)
    assert [one.cost_s for one in measured] == [2.0, 2.0], "the disturbed ones count"


def test_a_shared_launch_that_went_well_ends_a_row_of_spoiled_ones() -> None:
    def taken(launch: Launch) -> Completed:
        spoiled = Completed(returncode=1, wall_s=1.0, disturbed_by=(Tenant(pid=7, name="trainer", gpu="0", memory_gb=40.0),))
        return served(launch) if len(json.loads(launch.files["xs"])) > 1 else spoiled

    profiler = Profiler(Sharing(), Machine(taken), task(), Behaviours(), FOUR, VirtualClock())
    for _ in range(MAX_NOISY_TRIALS):
        assert [one.status for one in profiler.evaluate([proposal(3)])] == [Status.ABORTED]
        assert all(one.ok for one in profiler.evaluate([proposal(4), proposal(5)]))
    for _ in range(MAX_NOISY_TRIALS - 1):
        profiler.evaluate([proposal(3)])
    with pytest.raises(LaunchError, match="others used its GPUs"):
        profiler.evaluate([proposal(3)])


def test_nothing_that_starts_gives_the_reason_of_each_alone() -> None:
    class Refusing(Sharing):
        def render_together(self, configs: Sequence[Config], task: Task, seed: int) -> Launch:
            if len(configs) > 1:
                raise ValueError("not these together")
            return super().render_together(configs, task, seed)

    machine = Machine()
    found = Profiler(Refusing(), machine, task(), Behaviours(), FOUR, VirtualClock()).evaluate([proposal(2), proposal(3)])
    assert machine.shared == [[2], [3]]
    assert all(one.ok for one in found)


def test_how_many_is_checked() -> None:
    with pytest.raises(Exception, match="per_process"):
        ProfilerOptions(per_process=0)
