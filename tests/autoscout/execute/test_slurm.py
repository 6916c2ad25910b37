"""The Slurm executor on a real Slurm: the shipped suite in both modes, and what only a cluster can do to a trial."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from _slurm import SlurmCluster
from autoscout.common import processes
from autoscout.core.errors import ConfigError, LaunchError
from autoscout.core.launch import Launch, Resources
from autoscout.execute.slurm.clients import gpu_count
from autoscout.execute.slurm.executor import SlurmExecutor
from autoscout.execute.slurm.options import SlurmOptions
from autoscout.testing.executor import ExecutorSuite, StopSuite

pytestmark = pytest.mark.slow


def until(condition: Callable[[], object], what: str, patience_s: float = 90.0) -> None:
    end_s = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < end_s, what
        time.sleep(0.1)


def shell(line: str, **launch: object) -> Launch:
    return Launch(argv=(line,), shell=True, **launch)  # type: ignore[arg-type]


@pytest.fixture
def jobs_executor(slurm: SlurmCluster) -> Iterator[SlurmExecutor]:
    with SlurmExecutor(SlurmOptions(grace_s=0.5, slots=2)) as executor:
        yield executor
    slurm.wait_until(lambda: not slurm.jobs(), "the end of the jobs of a closed executor")


class TestJobsEnd(StopSuite):
    """The part of the contract in which a job of its own differs from a step of an allocation."""

    @pytest.fixture
    def executor(self, jobs_executor: SlurmExecutor) -> SlurmExecutor:
        return jobs_executor


@pytest.mark.soak
class TestJobs(ExecutorSuite):
    @pytest.fixture
    def executor(self, jobs_executor: SlurmExecutor) -> SlurmExecutor:
        return jobs_executor


class TestHeldAllocation(ExecutorSuite):
    @pytest.fixture
    def executor(self, slurm: SlurmCluster) -> Iterator[SlurmExecutor]:
        options = SlurmOptions(mode="allocation", grace_s=0.5, slots=2, nodes=2, cpus_per_node=4, gpus_per_node=2)
        with SlurmExecutor(options) as executor:
            yield executor
        slurm.wait_until(lambda: not slurm.jobs(), "the end of the jobs of a closed executor")


def test_options_become_flags() -> None:
    options = SlurmOptions(
        partition="gpu",
        account="research",
        qos="low",
        time_min=90,
        gpu_type="a100",
        constraint="nvlink",
        flags=("--reservation=night",),
        container_image="image.sqsh",
        step_flags=("--container-mounts=/data",),
    )
    asked = options.asks(Resources(cpus=8, gpus=4, memory_gb=2.5, nodes=2))
    assert set(asked) == {
        "--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=8", "--partition=gpu", "--account=research", "--qos=low",
        "--constraint=nvlink", "--time=90", "--gres=gpu:a100:4", "--mem=2560M", "--reservation=night",
    }  # fmt: skip
    step = options.step("7", "n3", Resources(cpus=8, gpus=4))
    assert {"srun", "--jobid=7", "--nodelist=n3", "--gres=gpu:a100:4", "--container-image=image.sqsh"} <= set(step)
    assert step[-1] == "--container-mounts=/data"
    assert SlurmOptions(apptainer_image="i.sif").step("7", "n3", Resources(gpus=1))[-4:] == ["apptainer", "exec", "--nv", "i.sif"]
    with pytest.raises(ConfigError) as refused:
        SlurmOptions(mode="array", kinds="two", nodes=0, time_min=0, silence_s=1, attempts=0)
    assert {fault.field for fault in refused.value.faults} == {"mode", "kinds", "nodes", "time_min", "silence_s", "attempts"}


@pytest.mark.parametrize(
    ("devices", "kind", "count"),
    [("gpu:a100:4(S:0-1)", "", 4), ("gpu:4", "a100", 0), ("gpu:a100:4(S:0,1),gpu:h100:2,nic:2", "h100", 2), ("(null)", "", 0)],
)
def test_gpus_are_counted_in_slurms_list_of_devices(devices: str, kind: str, count: int) -> None:
    assert gpu_count(devices, kind) == count


def test_gpus_are_those_that_slurm_gives(slurm: SlurmCluster) -> None:
    launch = shell('echo "$CUDA_VISIBLE_DEVICES $SLURMD_NODENAME"; sleep 3', resources=Resources(gpus=2))
    with SlurmExecutor(SlurmOptions(slots=3, gpu_type="h100")) as executor:
        answers = [job.result(120) for job in [executor.submit(launch) for _ in range(3)]]
    seen = [answer.stdout.split() for answer in answers]
    assert all(len(gpus.split(",")) == 2 and node in ("n3", "n4") for gpus, node in seen), seen
    assert len({tuple(each) for each in seen}) == 3, "no two trials had the same GPUs"
    assert {answer.machine for answer in answers} == {node for _, node in seen}


def test_trials_with_gpus_run_on_one_kind_unless_told_otherwise(slurm: SlurmCluster) -> None:
    launch = shell('echo "$SLURMD_NODENAME"; sleep 2', resources=Resources(gpus=4))
    seen: dict[str, set[str]] = {}
    for kinds in ("one", "any"):
        with SlurmExecutor(SlurmOptions(slots=4, kinds=kinds)) as executor:
            seen[kinds] = {job.result(120).stdout.strip() for job in [executor.submit(launch) for _ in range(4)]}
    assert seen["one"] in ({"n1", "n2"}, {"n3", "n4"}), "the others have GPUs of another type"
    assert seen["any"] == {"n1", "n2", "n3", "n4"}


def test_what_slurm_can_never_give_is_refused_at_once(slurm: SlurmCluster) -> None:
    with SlurmExecutor(SlurmOptions()) as executor:
        with pytest.raises(LaunchError, match="no machine of the Slurm cluster has more than 4"):
            executor.submit(Launch(argv=("true",), resources=Resources(gpus=5)))
        with pytest.raises(LaunchError, match="has 4 machines that hold one part"):
            executor.submit(Launch(argv=("true",), resources=Resources(nodes=5)))
    with SlurmExecutor(SlurmOptions(partition="nowhere")) as executor, pytest.raises(LaunchError):
        executor.submit(Launch(argv=("true",)))
    with SlurmExecutor(SlurmOptions(constraint="a100&h100")) as executor, pytest.raises(LaunchError, match="not available"):
        executor.submit(Launch(argv=("true",)))


@pytest.mark.parametrize("mode", ["job", "allocation"])
def test_a_trial_whose_node_dies_runs_again_elsewhere(slurm: SlurmCluster, tmp_path: Path, mode: str) -> None:
    line = 'echo "$SLURMD_NODENAME" >> "$WHERE/nodes"; if [ $(wc -l < "$WHERE/nodes") = 1 ]; then sleep 3600; fi; echo done'
    with SlurmExecutor(SlurmOptions(mode=mode, constraint="a100", silence_s=10)) as executor:
        job = executor.submit(shell(line, env={"WHERE": str(tmp_path)}))
        until((tmp_path / "nodes").exists, "the trial runs")
        first = (tmp_path / "nodes").read_text().strip()
        slurm.kill_node(first)
        try:
            completed = job.result(120)
        finally:
            slurm.start_node(first)
        assert (completed.returncode, completed.stdout) == (0, "done\n")
        assert len((tmp_path / "nodes").read_text().split()) == 2, "not lost, and not doubled"
        until(lambda: slurm.states()[first] == "idle", "the node is back")


def test_a_preempted_trial_runs_again(slurm: SlurmCluster, tmp_path: Path) -> None:
    line = 'echo x >> "$WHERE/starts"; if [ $(wc -l < "$WHERE/starts") = 1 ]; then sleep 3600; fi; echo done'
    launch = shell(line, env={"WHERE": str(tmp_path)}, resources=Resources(cpus=8))
    with SlurmExecutor(SlurmOptions(constraint="h100", flags=("--nodelist=n3",))) as executor:
        job = executor.submit(launch)
        until((tmp_path / "starts").exists, "the trial runs")
        slurm.run("sbatch", "--partition=urgent", "--nodelist=n3", "--cpus-per-task=8", "--wrap", "sleep 2")
        completed = job.result(120)
    assert (completed.returncode, completed.stdout) == (0, "done\n")
    assert (tmp_path / "starts").read_text() == "x\nx\n"


def test_an_allocation_that_ends_is_asked_for_again(slurm: SlurmCluster, tmp_path: Path) -> None:
    line = 'echo "$SLURM_JOB_ID" >> "$WHERE/jobs"; if [ $(wc -l < "$WHERE/jobs") = 1 ]; then sleep 3600; fi; echo done'
    with SlurmExecutor(SlurmOptions(mode="allocation")) as executor:
        job = executor.submit(shell(line, env={"WHERE": str(tmp_path)}))
        until((tmp_path / "jobs").exists, "the trial runs")
        slurm.run("scancel", (tmp_path / "jobs").read_text().strip())  # what Slurm does at the end of the walltime
        assert job.result(120).stdout == "done\n"
        again = executor.submit(shell('echo "$SLURM_JOB_ID"')).result(120).stdout
    first, second = (tmp_path / "jobs").read_text().split()
    assert first != second == again.strip(), "the new allocation is kept for the next trial"


@pytest.mark.soak  # the shortest walltime is a minute
def test_no_trial_is_lost_when_the_walltime_ends(slurm: SlurmCluster) -> None:
    launch = shell('echo "$SLURM_JOB_ID"; sleep 15')
    with SlurmExecutor(SlurmOptions(mode="allocation", time_min=1, attempts=1)) as executor:
        answers = [executor.submit(launch).result(120) for _ in range(6)]
        until(lambda: len(slurm.jobs()) == 1, "the first allocation was given back")
    assert [answer.returncode for answer in answers] == [0] * 6, "none was begun that would not have ended in time"
    assert len({answer.stdout for answer in answers}) > 1, "one allocation after the other"


def test_trials_of_one_allocation_have_gpus_of_their_own(slurm: SlurmCluster) -> None:
    options = SlurmOptions(mode="allocation", slots=4, nodes=2, cpus_per_node=4, gpus_per_node=4)
    launch = shell('echo "$CUDA_VISIBLE_DEVICES $SLURMD_NODENAME $SLURM_JOB_ID"; sleep 2', resources=Resources(gpus=2))
    with SlurmExecutor(options) as executor:
        seen = [job.result(120).stdout.split() for job in [executor.submit(launch) for _ in range(4)]]
    assert len({(gpus, node) for gpus, node, _ in seen}) == 4
    assert {gpus for gpus, _, _ in seen} == {"0,1", "2,3"}
    assert len({job for *_, job in seen}) == 1, "one allocation for all"


PROGRAM = """
import sys
from autoscout.core.launch import Launch
from autoscout.execute.slurm.executor import SlurmExecutor
from autoscout.execute.slurm.options import SlurmOptions
line = 'setsid sleep 3600 & echo $! > "$WHERE/child"; echo $$ > "$WHERE/pid"; touch "$WHERE/ready"; wait'
with SlurmExecutor(SlurmOptions(mode=sys.argv[2], flags=sys.argv[3:], slots=2)) as executor:
    jobs = [executor.submit(Launch(argv=(line,), shell=True, env={"WHERE": sys.argv[1]}))]
    jobs.append(executor.submit(Launch(argv=("sleep 3600",), shell=True)))
    jobs[0].result()
"""


def clients(slurm: SlurmCluster) -> list[int]:
    """Programs of ours that talk to this cluster."""
    marked = [pid for pid, value in processes.marked("SLURM_CONF") if value == slurm.environment["SLURM_CONF"] and pid != os.getpid()]
    words = (b"--job-name=autoscout-", b"--jobid=")
    return [pid for pid in processes.running(marked) if any(word in Path(f"/proc/{pid}/cmdline").read_bytes() for word in words)]


@pytest.mark.parametrize("mode", ["job", "allocation"])
def test_nothing_outlives_a_killed_tuner(slurm: SlurmCluster, tmp_path: Path, mode: str) -> None:
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path), mode], start_new_session=True)
    try:
        until((tmp_path / "ready").exists, "the trial runs")
        pids = [int((tmp_path / name).read_text()) for name in ("pid", "child")]
        process.send_signal(signal.SIGKILL)
        process.wait()
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "nothing is left of the trial", 60)
        until(lambda: not slurm.jobs(), "no job is left", 60)
        until(lambda: not clients(slurm), "and none of Slurm's programs", 60)
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def blocked(slurm: SlurmCluster) -> Iterator[tuple[str, int]]:
    """The flag that asks for a node, and the job that has all of it; no test kills this node."""
    flag = "--nodelist=n4"
    blocker = int(slurm.run("sbatch", "--parsable", flag, "--exclusive", "--wrap", "sleep 3600"))
    until(lambda: slurm.jobs().get(blocker) == "RUNNING", "the node is taken")
    yield flag, blocker
    slurm.run("scancel", str(blocker))
    until(lambda: not slurm.jobs(), "the cluster is empty")


def test_a_job_that_waits_is_cancelled_with_its_tuner(slurm: SlurmCluster, blocked: tuple[str, int], tmp_path: Path) -> None:
    flag, blocker = blocked
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path), "job", flag], start_new_session=True)
    try:
        until(lambda: list(slurm.jobs().values()).count("PENDING") == 2, "two trials wait")
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    until(lambda: list(slurm.jobs()) == [blocker], "they do not wait any more", 60)
    until(lambda: not clients(slurm), "and none of Slurm's programs is left", 60)


def test_who_waits_for_slurm_is_told_what_for(
    slurm: SlurmCluster, blocked: tuple[str, int], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autoscout.execute._shared.patience.FIRST_S", 1.0)
    with SlurmExecutor(SlurmOptions(flags=(blocked[0],))) as executor:
        job = executor.submit(Launch(argv=("true",)))
        until(lambda: "waiting for Slurm" in caplog.text, "it says that it waits")
        assert re.search(r"waiting for Slurm for \d+ s: job \d+ \(pending \w+\)", caplog.text)
        job.cancel()
        assert job.result(60).cancelled
