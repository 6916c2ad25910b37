"""The profiler: seeds, repeats, disturbed samples, and whose fault a failure is."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from _systems import Behaviours, Script, proposal, task
from autoscout.core.clock import VirtualClock
from autoscout.core.config import Config
from autoscout.core.errors import ClusterError, ConfigError, LaunchError
from autoscout.core.launch import Completed, Launch, Resources, Tenant
from autoscout.core.protocols import Executor
from autoscout.core.task import Task
from autoscout.core.trial import Fidelity, Measurement, Proposal, Status, Trial
from autoscout.evaluate.profiler import Profiler, ProfilerOptions
from autoscout.execute.local import LocalExecutor, LocalOptions

CLEAN = ProfilerOptions(dirty_repeats=0)


@pytest.fixture
def executor() -> Iterator[LocalExecutor]:
    with LocalExecutor(LocalOptions(grace_s=0.2)) as executor:
        yield executor


def profiler(executor: LocalExecutor, script: Script, options: ProfilerOptions = CLEAN) -> Profiler:
    return Profiler(script, executor, task(), Behaviours(), options)


# --- on real processes -----------------------------------------------------------------------------------------------


def test_a_measurement_carries_cost_and_circumstances(executor: LocalExecutor) -> None:
    (measured,) = profiler(executor, Script()).evaluate([proposal(2)])
    assert measured.ok
    assert measured.metrics["time_s"] == 2.0
    assert measured.fidelity is Fidelity.MEASURED
    assert measured.cost_s == measured.conditions["wall_s"] > 0
    assert measured.conditions["cpu_s"] > 0
    assert measured.conditions["peak_memory_gb"] > 0
    assert {"cpu_share", "load_1min"} <= measured.conditions.keys()
    assert measured.log_tail == measured.reason == ""


def test_failures_keep_the_end_of_the_log(executor: LocalExecutor) -> None:
    crashed, garbage = profiler(executor, Script()).evaluate([proposal("crash"), proposal("garbage")])
    assert "it broke" in crashed.log_tail
    assert crashed.cost_s > 0
    assert "no json here" in garbage.log_tail
    assert "out.json" in garbage.reason, "what the parser stumbled over"


def test_an_invalid_configuration_costs_nothing_and_starts_nothing(executor: LocalExecutor) -> None:
    script = Script()
    (measured,) = profiler(executor, script).evaluate([proposal("forbidden")])
    assert (measured.status, measured.reason, measured.cost_s) == (Status.INVALID, "x is forbidden; it really is", 0.0)
    assert script.seeds == []


def test_a_hang_is_a_timeout_whatever_the_parser_says(executor: LocalExecutor, tmp_path: Path) -> None:
    script = Script(folder=str(tmp_path))
    (measured,) = profiler(executor, script, replace(CLEAN, limit_s=2.0)).evaluate([proposal("hang")])
    assert measured.status is Status.TIMEOUT
    assert re.search(r"within 2(\.\d+)? s", measured.reason)
    assert measured.cost_s >= 2.0
    assert script.completed[0].timed_out, "the parser was asked nevertheless"


def test_a_launch_that_the_budget_cuts_off_says_nothing(executor: LocalExecutor, tmp_path: Path) -> None:
    short = profiler(executor, Script(folder=str(tmp_path)), replace(CLEAN, budget_s=1.0))
    (measured,) = short.evaluate([proposal("hang")])
    assert measured.status is Status.ABORTED
    assert measured.reason.startswith("cut off by the budget after 1")
    quick = Measurement(status=Status.OK, metrics={"time_s": 1.0}, cost_s=0.05)
    short.learn([Trial(proposal=proposal(2), measurement=quick)])
    (measured,) = short.evaluate([proposal("hang")])
    assert measured.status is Status.TIMEOUT, "others take a twentieth of that: it is slow itself"
    own = profiler(executor, Script(folder=str(tmp_path)), replace(CLEAN, limit_s=0.5, budget_s=1.0))
    assert own.evaluate([proposal("hang")])[0].status is Status.TIMEOUT, "a limit of one launch is what a configuration must keep"


def test_memory_is_the_executors_word(executor: LocalExecutor) -> None:
    class Eater(Script):
        def render(self, config: Config, task: Task, seed: int) -> Launch:
            return Launch(
                argv=(sys.executable, "-c", "x = bytearray(1 << 30)\nimport time; time.sleep(3600)"), resources=Resources(memory_gb=0.1)
            )

    class Knowing(Eater):
        def parse(self, completed: Completed, task: Task) -> Measurement:
            return Measurement(status=Status.OOM_START, reason="while loading")

    assert profiler(executor, Eater()).evaluate([proposal(1)])[0].status is Status.OOM_RUN
    assert profiler(executor, Knowing()).evaluate([proposal(1)])[0].status is Status.OOM_START, "a backend may know more"


def test_a_missing_engine_is_a_broken_world(executor: LocalExecutor) -> None:
    with pytest.raises(LaunchError, match=r"script: could not be started: cannot start 'no-engine'.*No such file") as caught:
        profiler(executor, Script(argv0="no-engine")).evaluate([proposal(1)])
    assert "no-engine" in caught.value.faults[0].value
    with pytest.raises(LaunchError):
        profiler(executor, Script(argv0="no-engine")).evaluate([proposal(2), proposal(3)])


def test_a_missing_engine_named_by_a_knob_is_that_configurations_fault(executor: LocalExecutor) -> None:
    measuring = profiler(executor, Script())
    assert measuring.evaluate([proposal(1)])[0].ok
    (measured,) = measuring.evaluate([proposal("missing")])
    assert measured.status is Status.INVALID
    assert "no-such-engine" in measured.reason
    with pytest.raises(LaunchError):
        profiler(executor, Script()).evaluate([proposal("missing")])


def test_a_configuration_that_asks_for_too_much_is_invalid_once_something_ran(executor: LocalExecutor) -> None:
    measuring = profiler(executor, Script())
    assert measuring.evaluate([proposal(1)])[0].ok
    (measured,) = measuring.evaluate([proposal("greedy")])
    assert (measured.status, measured.cost_s) == (Status.INVALID, 0.0)
    assert "999" in measured.reason
    with pytest.raises(LaunchError, match="999"):
        profiler(executor, Script(resources=Resources(gpus=999))).evaluate([proposal(1)])


def test_a_full_disk_is_nobodys_configuration(executor: LocalExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    measuring = profiler(executor, Script())
    assert measuring.evaluate([proposal(1)])[0].ok

    def full(*_: object) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("autoscout.execute._shared.supervisor.client.make_folder", full)
    with pytest.raises(LaunchError, match=r"trials: the folder of a launch cannot be written: No space left.*continues where it was"):
        measuring.evaluate([proposal(2)])


def test_what_a_shell_does_not_find_was_not_started_either(executor: LocalExecutor) -> None:
    class Line(Script):
        def render(self, config: Config, task: Task, seed: int) -> Launch:
            return Launch(argv=("no-such-command --flag",), shell=True)

    with pytest.raises(LaunchError, match="not found"):
        profiler(executor, Line()).evaluate([proposal(1)])


def test_every_launch_has_fresh_inputs_and_every_run_the_same(executor: LocalExecutor) -> None:
    def seeds(options: ProfilerOptions, repeat: int = 0) -> list[int]:
        script = Script()
        profiler(executor, script, options).evaluate([proposal(1, repeat)])
        assert all(0 <= seed < 2**31 for seed in script.seeds)
        return script.seeds

    three = ProfilerOptions(dirty_repeats=0, repeats=3)
    assert len(set(seeds(three))) == 3
    assert seeds(three) == seeds(three)
    assert not set(seeds(three)) & set(seeds(three, repeat=1))
    assert not set(seeds(three)) & set(seeds(replace(three, seed=1)))


def test_trial_folders_have_readable_names(tmp_path: Path) -> None:
    with LocalExecutor(LocalOptions(folder=tmp_path)) as executor:
        profiler(executor, Script(), ProfilerOptions(dirty_repeats=0, repeats=2)).evaluate([proposal(1, repeat=3)])
    key = Config(x=1).key[:8]
    assert sorted(path.name for path in (tmp_path / "trials").iterdir()) == [f"{key}-3", f"{key}-3.1"]


@pytest.mark.skipif(not Path("/proc/pressure/cpu").exists(), reason="the kernel does not tell CPU pressure")
def test_a_really_busy_machine_is_noticed() -> None:
    core = min(os.sched_getaffinity(0))
    spin = f"import os, time\nos.sched_setaffinity(0, [{core}])\nprint('on', flush=True)\nend = time.monotonic() + 120\n"
    spin += "while time.monotonic() < end: pass"
    rivals = [subprocess.Popen([sys.executable, "-c", spin], stdout=subprocess.PIPE) for _ in range(4)]
    options = ProfilerOptions(dirty_repeats=1, dirty_pause_s=0.0)
    try:
        assert all(rival.stdout and rival.stdout.readline() == b"on\n" for rival in rivals)
        with LocalExecutor(LocalOptions(cores=[core])) as executor:
            # A script this short may fall between two ticks of the kernel's accounts: one of three is enough.
            measured = profiler(executor, Script(), options).evaluate([proposal(number) for number in range(1, 4)])
    finally:
        for rival in rivals:
            rival.kill()
            rival.communicate()
    assert all(found.ok for found in measured)
    noticed = [found.conditions for found in measured if found.conditions.get("dirty_repeats") == 1.0]
    assert noticed
    assert all(conditions["launches"] == 2.0 for conditions in noticed)


# --- on scripted circumstances, which no machine can be made to show on demand -----------------------------------------------


@dataclass
class Scripted(Executor):
    """An executor whose launches end at once as told; the n-th one with the n-th of `conditions`."""

    conditions: list[dict[str, float]]
    ends: Callable[[int], Completed] = lambda number: Completed(returncode=0, wall_s=1.0)
    launches: list[Launch] = field(default_factory=list)
    slots: int = 1

    def submit(self, launch: Launch) -> Ended:
        number = len(self.launches)
        self.launches.append(launch)
        seen = self.conditions[min(number, len(self.conditions) - 1)]
        return Ended(replace(self.ends(number), conditions=seen, outputs={"out.json": f'{{"time_s": {number + 1}}}'}))

    def close(self) -> None:
        pass


@dataclass(eq=False)
class Ended:
    completed: Completed

    def done(self) -> bool:
        return True

    def result(self, timeout_s: float | None = None) -> Completed:
        return self.completed

    def cancel(self) -> None:
        pass


class Lost(Scripted):
    """Its cluster goes away during the launch."""

    def lost(self) -> ClusterError:
        return ClusterError("the cluster is gone")


def test_a_launch_that_was_lost_with_its_cluster_ends_the_study() -> None:
    """Without a next launch, in the last round of a final, nobody else would say so."""
    gone = Completed(returncode=None, cancelled=True)
    with pytest.raises(ClusterError, match="the cluster is gone"):
        measure(Lost([{}], lambda _: gone), CLEAN)
    assert measure(Lost([{}]), CLEAN).ok, "one that ended in time counts"
    assert measure(Scripted([{}], lambda _: gone), CLEAN).status is Status.ABORTED


def busy(others: float, pressure: float = 0.9) -> dict[str, float]:
    return {"cpu_pressure": pressure, "other_cpu_share": others}


def measure(executor: Scripted, options: ProfilerOptions, clock: VirtualClock | None = None) -> Measurement:
    return Profiler(Script(), executor, task(), Behaviours(), options, clock or VirtualClock()).evaluate([proposal(1)])[0]


def test_a_disturbed_sample_is_taken_again_until_one_is_clean() -> None:
    executor, clock = Scripted([busy(0.5), busy(0.4), busy(0.01)]), VirtualClock()
    measured = measure(executor, ProfilerOptions(dirty_repeats=5, dirty_pause_s=0.5), clock)
    assert len(executor.launches) == 3
    assert measured.metrics == {"time_s": 3.0}
    assert measured.conditions["dirty_repeats"] == 2.0
    assert measured.conditions["launches"] == 3.0
    assert measured.cost_s == 3.0, "what it cost to get there counts"
    assert "dirty" not in measured.conditions
    assert clock.span_s() == pytest.approx(1.5), "0.5 s, then 1 s: twice as long, but no longer than a sample takes"


def test_when_none_is_clean_the_least_disturbed_counts() -> None:
    executor = Scripted([busy(0.5), busy(0.2), busy(0.4)])
    measured = measure(executor, ProfilerOptions(dirty_repeats=2))
    assert len(executor.launches) == 3
    assert measured.metrics == {"time_s": 2.0}
    assert measured.conditions["other_cpu_share"] == 0.2
    assert measured.conditions["dirty"] == 1.0, "said, since it counts although it was disturbed"


def test_a_machine_that_is_never_quiet_is_not_waited_for_again_and_again() -> None:
    executor = Scripted([busy(0.5)] * 11 + [busy(0.0)] + [busy(0.5)])
    measuring = Profiler(Script(), executor, task(), Behaviours(), ProfilerOptions(dirty_repeats=2), VirtualClock())
    launches = []
    for x in range(1, 8):
        before = len(executor.launches)
        (measured,) = measuring.evaluate([proposal(x)])
        assert measured.ok
        launches.append(len(executor.launches) - before)
    assert launches == [3, 3, 3, 1, 1, 1, 3], "three in vain, then single ones; a clean one gives hope again"


@pytest.mark.parametrize("seen", [busy(0.02), busy(0.9, pressure=0.1), {}], ids=["own threads", "no waiting", "not told"])
def test_pressure_of_its_own_making_is_no_dirt(seen: dict[str, float]) -> None:
    executor = Scripted([seen])
    assert "dirty_repeats" not in measure(executor, ProfilerOptions()).conditions
    assert len(executor.launches) == 1


def test_pressure_alone_counts_where_nobody_tells_more() -> None:
    executor = Scripted([{"cpu_pressure": 0.9}, {"cpu_pressure": 0.0}])
    assert measure(executor, ProfilerOptions()).metrics == {"time_s": 2.0}


def test_a_timeout_on_a_busy_machine_gets_one_more_chance() -> None:
    late = Completed(returncode=None, timed_out=True, wall_s=60.0)
    executor = Scripted([busy(0.5)], ends=lambda number: late if number < 9 else Completed(returncode=0))
    measured = measure(executor, ProfilerOptions(dirty_repeats=5))
    assert len(executor.launches) == 2
    assert (measured.status, measured.cost_s) == (Status.TIMEOUT, 120.0)
    executor = Scripted([busy(0.5), busy(0.0)], ends=lambda number: Completed(returncode=0, wall_s=1.0) if number else late)
    assert measure(executor, ProfilerOptions(dirty_repeats=5)).ok


def test_a_repeat_is_announced_with_what_was_disturbed() -> None:
    told: list[tuple[Proposal, Measurement]] = []
    executor = Scripted([busy(0.5), busy(0.01)])
    announcing = Profiler(Script(), executor, task(), Behaviours(), clock=VirtualClock(), on_repeat=lambda *each: told.append(each))
    announcing.evaluate([proposal(1)])
    assert [(one.config["x"], disturbed.conditions["other_cpu_share"]) for one, disturbed in told] == [(1, 0.5)]


def test_a_crash_on_a_busy_machine_is_a_crash() -> None:
    executor = Scripted([busy(0.5)], ends=lambda number: Completed(returncode=3))
    assert measure(executor, ProfilerOptions()).status is Status.CRASHED
    assert len(executor.launches) == 1


TRAINER = Tenant(pid=4242, name="trainer", gpu="0", memory_gb=40.0)


def crowded(*taken: bool) -> Callable[[int], Completed]:
    """Launches that crash, the n-th one next to a tenant when the n-th of `taken` says so; those after the last one work."""

    def end(number: int) -> Completed:
        if number >= len(taken):
            return Completed(returncode=0, wall_s=1.0)
        return Completed(returncode=1, wall_s=1.0, disturbed_by=(TRAINER,) if taken[number] else ())

    return end


def on_gpus(executor: Scripted, options: ProfilerOptions) -> Profiler:
    return Profiler(Script(), executor, task(), Behaviours(), options, VirtualClock())


def test_a_failure_while_others_held_the_gpu_is_repeated() -> None:
    executor = Scripted([{}], ends=crowded(True, True))
    (measured,) = on_gpus(executor, ProfilerOptions(dirty_repeats=2)).evaluate([proposal(1)])
    assert (measured.status, measured.metrics, measured.cost_s) == (Status.OK, {"time_s": 3.0}, 3.0)
    assert measured.conditions["dirty_repeats"] == 2.0


def test_a_failure_that_stays_when_the_others_have_left_is_the_configurations() -> None:
    executor = Scripted([{}], ends=crowded(True, False))
    (measured,) = on_gpus(executor, ProfilerOptions(dirty_repeats=2)).evaluate([proposal(1)])
    assert measured.status is Status.CRASHED
    assert len(executor.launches) == 2


def test_a_configuration_is_never_blamed_for_others() -> None:
    executor = Scripted([{}], ends=crowded(*[True] * 6))
    measuring = on_gpus(executor, ProfilerOptions(dirty_repeats=1))
    for x in (2, 3):
        (measured,) = measuring.evaluate([proposal(x)])
        assert measured.status is Status.ABORTED
        assert measured.reason == "crashed while others used its GPUs: pid 4242 (trainer) with 40 GB on GPU 0"
    with pytest.raises(LaunchError, match=r"pid 4242 \(trainer\) with 40 GB on GPU 0.*run the same command again"):
        measuring.evaluate([proposal(4)])


def test_others_that_leave_no_room_for_the_default_are_a_broken_world() -> None:
    executor = Scripted([{}], ends=crowded(*[True] * 6))
    with pytest.raises(LaunchError, match="pid 4242"):
        on_gpus(executor, ProfilerOptions(dirty_repeats=1)).evaluate([proposal(1)])
    assert len(executor.launches) == 2


def test_an_executor_that_waited_in_vain_for_its_gpus_ends_the_study() -> None:
    refused = Completed(returncode=None, error="waited 300 s for GPUs that others use", disturbed_by=(TRAINER,))
    executor = Scripted([{}], ends=lambda number: refused if number else Completed(returncode=0, wall_s=1.0))
    measuring = on_gpus(executor, CLEAN)
    assert measuring.evaluate([proposal(1)])[0].ok
    with pytest.raises(LaunchError, match="waited 300 s"):
        measuring.evaluate([proposal(2)])


def test_load_of_others_on_the_gpu_makes_a_sample_dirty() -> None:
    executor = Scripted([{"gpu_other_share": 0.5}, {"gpu_other_share": 0.2}, {"gpu_other_share": 0.05}])
    measured = measure(executor, ProfilerOptions(dirty_repeats=5))
    assert measured.metrics == {"time_s": 3.0}
    assert measured.conditions["dirty_repeats"] == 2.0
    executor = Scripted([{"gpu_other_share": 0.5}, {"gpu_other_share": 0.2}])
    assert measure(executor, ProfilerOptions(dirty_repeats=1)).metrics == {"time_s": 2.0}, "the least disturbed counts"


def test_of_repeats_the_median_counts() -> None:
    executor = Scripted([busy(0.0)])
    measured = measure(executor, ProfilerOptions(repeats=3))
    assert measured.metrics == {"time_s": 2.0}
    assert measured.samples == {"time_s": (1.0, 2.0, 3.0)}
    assert measured.cost_s == 3.0


def test_one_failure_among_repeats_is_a_failure() -> None:
    executor = Scripted([busy(0.0)], ends=lambda number: Completed(returncode=3 if number == 1 else 0, wall_s=1.0))
    measured = measure(executor, ProfilerOptions(repeats=5))
    assert measured.status is Status.CRASHED
    assert len(executor.launches) == 2, "no more repeats after that"
    assert measured.cost_s == 2.0


def test_repeats_of_several_proposals_are_interleaved() -> None:
    executor = Scripted([busy(0.0)])
    Profiler(Script(), executor, task(), Behaviours(), ProfilerOptions(repeats=2)).evaluate([proposal(1), proposal(2)])
    assert [launch.argv[3] for launch in executor.launches] == ["1", "2", "1", "2"]


def test_the_shorter_limit_stands() -> None:
    class Limited(Script):
        def render(self, config: Config, task: Task, seed: int) -> Launch:
            return replace(super().render(config, task, seed), limit_s=10.0)

    for mine, expected in ((None, 10.0), (5.0, 5.0), (50.0, 10.0)):
        executor = Scripted([busy(0.0)])
        Profiler(Limited(), executor, task(), Behaviours(), ProfilerOptions(limit_s=mine)).evaluate([proposal(1)])
        assert executor.launches[0].limit_s == expected


def test_options_are_checked_all_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        ProfilerOptions(repeats=0, dirty_repeats=-1, dirty_pressure=2.0, limit_s=0.0)
    assert {fault.field for fault in caught.value.faults} == {"repeats", "dirty_repeats", "dirty_pressure", "limit_s"}
