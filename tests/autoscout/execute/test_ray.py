"""The Ray executor on a Ray of its own: the shipped suite, and what only Ray can do to a trial."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from _gpus import process, write_gpus
from autoscout.common.leases import Ticket, holder
from autoscout.core.errors import ConfigError, LaunchError
from autoscout.core.launch import Launch, Resources
from autoscout.execute.ray.executor import RayExecutor
from autoscout.execute.ray.options import RayOptions
from autoscout.testing.executor import ExecutorSuite

pytestmark = [
    pytest.mark.adapters,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
]  # Ray's own warnings change from release to release


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One Ray for the module, as a user's program may have started it, with one GPU; the folder of the leases and of `gpus.json`."""
    import logging

    import ray

    folder = tmp_path_factory.mktemp("leases")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AUTOSCOUT_FAKE_GPUS", str(write_gpus(folder / "gpus.json", [])))
        environment.setenv("AUTOSCOUT_LEASES", str(folder))
        ray.init(
            address="local",
            num_cpus=2,
            num_gpus=1,
            include_dashboard=False,
            _node_ip_address="127.0.0.1",
            logging_level=logging.ERROR,
            log_to_driver=False,
        )
    yield folder
    ray.shutdown()


class TestRay(ExecutorSuite):
    @pytest.fixture
    def executor(self, cluster: Path) -> Iterator[RayExecutor]:
        with RayExecutor(RayOptions(grace_s=0.5)) as executor:
            yield executor


def gone(pid: int) -> bool:
    try:
        state = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # the second when it ends while it is read
        return True
    return state == "Z"


def until(condition: Callable[[], bool], what: str, patience_s: float = 60.0) -> None:
    end_s = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < end_s, what
        time.sleep(0.05)


def sleeper(folder: Path) -> Launch:
    """A trial with a child in a session of its own; both leave their numbers."""
    line = 'setsid sleep 3600 & echo $! > "$WHERE/child"; echo $$ > "$WHERE/pid"; echo "$AUTOSCOUT_JOB" > "$WHERE/mark"; wait'
    return Launch(argv=(line,), shell=True, env={"WHERE": str(folder)}, name="sleeper")


def test_a_lost_worker_is_an_answer_and_its_trial_goes_too(cluster: Path, tmp_path: Path) -> None:
    with RayExecutor(RayOptions(attempts=1)) as executor:
        job = executor.submit(sleeper(tmp_path))
        until(lambda: (tmp_path / "mark").exists() and (tmp_path / "mark").read_text().endswith("\n"), "the trial runs")
        pids = [int((tmp_path / name).read_text()) for name in ("pid", "child")]
        os.kill(int((tmp_path / "mark").read_text().split(":")[1]), signal.SIGKILL)  # the worker, which made the mark
        completed = job.result(60)
        assert completed.returncode == -signal.SIGKILL
        assert not completed.cancelled
        assert "Ray worker" in completed.error
        until(lambda: all(map(gone, pids)), "nothing is left of the trial")
        assert executor.submit(Launch(argv=("true",))).result(60).returncode == 0, "the next trial finds its worker"


def test_a_trial_that_finds_no_room_can_be_cancelled(cluster: Path, tmp_path: Path) -> None:
    with RayExecutor(RayOptions(slots=2)) as executor:
        first = executor.submit(Launch(argv=(f"touch {tmp_path}/begun; sleep 3600",), shell=True, resources=Resources(cpus=2)))
        until((tmp_path / "begun").exists, "the first runs")
        second = executor.submit(Launch(argv=("true",), resources=Resources(cpus=2)))
        time.sleep(1.0)
        assert not second.done(), "Ray has two CPUs, and both are taken"
        second.cancel()
        assert second.result(10).cancelled
        first.cancel()
        assert first.result(60).cancelled


def test_what_no_machine_has_is_refused_by_name(cluster: Path) -> None:
    with RayExecutor() as executor, pytest.raises(LaunchError, match=r"no machine of the Ray cluster has more than 2"):
        executor.submit(Launch(argv=("true",), resources=Resources(cpus=3)))


def test_options_are_checked_all_at_once() -> None:
    with pytest.raises(ConfigError) as refused:
        RayOptions(slots=0, grace_s=-1.0, keep_files="some", cpus=0)
    assert {fault.field for fault in refused.value.faults} == {"slots", "grace_s", "keep_files", "cpus"}


def test_an_address_without_ray_is_told() -> None:
    program = (
        "from autoscout.core.launch import Launch\nfrom autoscout.execute.ray.executor import RayExecutor\n"
        "from autoscout.execute.ray.options import RayOptions\n"
        "RayExecutor(RayOptions(address='127.0.0.1:1')).submit(Launch(argv=('true',)))\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 1
    assert "ClusterError" in ran.stderr
    assert "Ray cannot be reached" in ran.stderr


PROGRAM = """
import sys
from pathlib import Path
from autoscout.core.launch import Launch
from autoscout.execute.ray.executor import RayExecutor
from autoscout.execute.ray.options import RayOptions
if __name__ == "__main__":
    line = 'setsid sleep 3600 & echo $! > child; echo $$ > pid; cp child pid "$WHERE"; touch "$WHERE/ready"; wait'
    with RayExecutor(RayOptions(cpus=2)) as executor:
        executor.submit(Launch(argv=(line,), shell=True, env={"WHERE": sys.argv[1]})).result()
"""


@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_us(tmp_path: Path, blow: signal.Signals) -> None:
    """Ctrl-C and kill -9 of a process that started Ray itself: trial, its stray child and Ray are gone."""
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)], start_new_session=True, stderr=subprocess.PIPE)
    try:
        until((tmp_path / "ready").exists, "the trial runs", 120.0)
        pids = [int((tmp_path / name).read_text()) for name in ("pid", "child")]
        assert not any(map(gone, pids))
        if blow == signal.SIGINT:
            os.killpg(process.pid, blow)  # as a terminal does
        else:
            process.send_signal(blow)
        process.communicate(timeout=60)
        until(lambda: all(map(gone, pids)), "nothing is left of the trial")
    finally:
        process.kill()
        process.wait()


def test_gpus_are_leased_from_studies_that_do_not_use_this_ray(cluster: Path) -> None:
    """Ray hands GPU 0 out, but a study on the local executor has it: the trial waits, and then holds the lease itself."""
    launch = Launch(argv=("echo $CUDA_VISIBLE_DEVICES; cat $AUTOSCOUT_LEASES/gpu-*",), shell=True, resources=Resources(gpus=1))
    with Ticket(1, {"0": "GPU-fake-0"}, "a local study", cluster) as ticket:
        lease = ticket.take(lambda free: free)
    assert lease is not None
    with RayExecutor(RayOptions(slots=2)) as executor:
        job = executor.submit(launch)
        assert executor.submit(Launch(argv=("true",))).result().returncode == 0, "one without GPUs passes it"
        until(lambda: any(cluster.glob("wait-*")), "the trial waits for the lease", 120.0)
        assert not job.done()
        lease.release()
        done = job.result()
    assert done.returncode == 0, done.error
    seen, note = done.stdout.strip().splitlines()
    assert seen == "0"
    assert '"pid"' in note, "leased while it ran"
    assert holder(cluster, "GPU-fake-0") is None, "and not after"


def test_other_peoples_processes_are_named_on_ray_too(cluster: Path) -> None:
    write_gpus(cluster / "gpus.json", [process(memory_gb=40.0)])
    try:
        with RayExecutor(RayOptions(gpu_wait_s=0.5)) as executor:
            done = executor.submit(Launch(argv=("true",), resources=Resources(gpus=1))).result()
    finally:
        write_gpus(cluster / "gpus.json", [])
    assert done.returncode is None
    assert "trainer" in done.error
    assert [each.memory_gb for each in done.disturbed_by] == [40.0]


def test_tuning_a_scheduler_on_ray(cluster: Path) -> None:
    """Configurations of a scheduler in parallel: the same answers as here."""
    from autoscout.core import plugins
    from autoscout.core.trial import Proposal
    from autoscout.evaluate.profiler import Profiler

    backend = plugins.get("backend", "sched")()
    task = backend.task({"workload": {"trace": "synthetic:philly:300:1:0"}, "hardware": {"cluster": "4x8"}})
    space = backend.space(task)
    proposals = [Proposal(config=config) for config in (space.default(), next(iter(space.neighbours(space.default()))))]
    here = [backend.render(proposal.config, task, 0).call() for proposal in proposals]
    with RayExecutor(RayOptions(slots=2)) as executor:
        there = Profiler(backend, executor, task, space).evaluate(proposals)
    assert [answer.metrics for answer in there] == [answer.metrics for answer in here]
