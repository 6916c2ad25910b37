"""The hosts executor against real sshd, each in a network of its own: the shipped suite, and hosts that die or are cut off."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from _killed_study import kill_and_resume
from _ssh_hosts import SshHosts, missing
from autoscout.core.errors import ClusterError, ConfigError, LaunchError
from autoscout.core.launch import Completed, Launch, Resources
from autoscout.execute._shared.remote.nodes import ClusterNode, NodePool
from autoscout.execute.hosts.executor import HostsExecutor
from autoscout.execute.hosts.machines import Machines
from autoscout.execute.hosts.options import HostsOptions
from autoscout.testing.executor import ExecutorSuite

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    reason = missing()
    if reason:
        pytest.skip(reason)
    with SshHosts(tmp_path_factory.mktemp("hosts"), 3) as hosts:
        yield hosts


def made(hosts: SshHosts, slots: int = 2, **options: Any) -> HostsExecutor:
    chosen = {"hostfile": hosts.hostfile(2), "ssh": hosts.ssh, "cpus": 4, "grace_s": 0.5, "slots": slots, **options}
    return HostsExecutor(HostsOptions(**chosen))


def until(condition: Callable[[], object], what: str, patience_s: float = 90.0) -> None:
    end_s = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < end_s, what
        time.sleep(0.1)


def shell(line: str, **launch: Any) -> Launch:
    return Launch(argv=(line,), shell=True, **launch)


class TestHosts(ExecutorSuite):
    @pytest.fixture
    def executor(self, hosts: SshHosts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostsExecutor]:
        one = tmp_path_factory.mktemp("hostfile") / "hosts"  # one is enough here, and each is asked by each test
        one.write_text(f"{hosts.names[0]} slots=2\n")
        with made(hosts, hostfile=one) as executor:
            yield executor
        assert not [pid for name in hosts.names for pid in hosts.running(name)]


def test_gpus_are_pinned_and_machines_filled_one_after_the_other(hosts: SshHosts) -> None:
    launch = shell('echo "$CUDA_VISIBLE_DEVICES"; sleep 3', resources=Resources(gpus=1))
    with made(hosts, slots=6) as executor:
        answers = [job.result(120) for job in [executor.submit(launch) for _ in range(6)]]
    assert sorted((answer.machine, answer.stdout.strip()) for answer in answers) == [(name, gpu) for name in hosts.names for gpu in "01"]
    assert all(answer.conditions["machine_probe_s"] > 0 for answer in answers), "how fast the machine is stands with the trial"


def test_what_no_host_has_is_refused(hosts: SshHosts) -> None:
    with made(hosts) as executor, pytest.raises(LaunchError, match="no machine of the hostfile has more than 2"):
        executor.submit(Launch(argv=("true",), resources=Resources(gpus=3)))


def test_hosts_that_do_not_answer_are_named_all_at_once(hosts: SshHosts, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("127.0.0.1 slots=1\n127.0.0.2 slots=1\n")
    with made(hosts, hostfile=tmp_path / "hosts") as executor, pytest.raises(ClusterError) as refused:
        executor.submit(Launch(argv=("true",)))
    assert sorted(fault.field for fault in refused.value.faults) == ["127.0.0.1", "127.0.0.2"]


def test_options_are_checked_all_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        HostsOptions(hostfile="", ssh=" ", kinds="two", copy=("relative",), silence_s=1)
    assert {fault.field for fault in refused.value.faults} == {"hostfile", "ssh", "kinds", "copy", "silence_s"}
    with pytest.raises(ConfigError, match="cannot be read"):
        HostsExecutor(HostsOptions(hostfile=tmp_path / "none"))


def test_a_machine_on_which_every_trial_is_disturbed_is_drained_while_another_is_quiet(tmp_path: Path) -> None:
    pool = NodePool(2, [ClusterNode(name=name, cores=2, gpus=0) for name in ("a", "b")], "the test")
    machines = Machines(HostsOptions(hostfile="unused"), {"a": 1, "b": 1}, pool, tmp_path / "trials", lambda: None)
    disturbed = Completed(returncode=0, conditions={"cpu_pressure": 0.9, "other_cpu_share": 0.9})
    for completed in (disturbed, disturbed, Completed(returncode=0), disturbed, disturbed):
        machines.judge("a", completed)
    assert not pool.drained, "never three in a row"
    machines.judge("b", disturbed)
    machines.judge("a", disturbed)
    assert not pool.drained, "no other is better"
    machines.judge("b", Completed(returncode=0))
    machines.judge("a", disturbed)
    assert list(pool.drained) == ["a"]


AGAIN = 'echo x >> "$WHERE/starts"; if [ $(wc -l < "$WHERE/starts") = 1 ]; then sleep 3600; fi; echo done'


@pytest.mark.parametrize("blow", ["kill", "cut"])
def test_a_host_that_is_lost_is_drained_and_its_trial_runs_elsewhere(hosts: SshHosts, tmp_path: Path, blow: str) -> None:
    """A host that is cut off ends the trial by itself: it must not run twice."""
    with made(hosts, slots=1, silence_s=6, retry_s=1.0) as executor:
        where = 'echo "$AUTOSCOUT_SSH_HOST" > "$WHERE/host"; ' + AGAIN
        job = executor.submit(shell(where, env={"WHERE": str(tmp_path)}))
        until((tmp_path / "starts").exists, "the trial runs")
        first = (tmp_path / "host").read_text().strip().rpartition(":")[2]
        getattr(hosts, blow)(first)
        try:
            completed = job.result(120)
            assert (completed.returncode, completed.stdout) == (0, "done\n")
            assert completed.machine != first
            until(lambda: not hosts.running(first), "nothing runs on the lost host", 60)
        finally:
            if blow == "kill":
                hosts.start(first)
            else:
                hosts.heal(first)
        assert (tmp_path / "starts").read_text() == "x\nx\n", "not lost, and not doubled"
        used = {executor.submit(Launch(argv=("true",))).result(60).machine}
        until(lambda: not executor._pool.drained, "the host is used again", 60)
        assert used <= set(hosts.names)


PROGRAM = """
import sys
from autoscout.core.launch import Launch
from autoscout.execute.hosts.executor import HostsExecutor
from autoscout.execute.hosts.options import HostsOptions
line = 'setsid sleep 3600 & touch "$WHERE/ready"; wait'
with HostsExecutor(HostsOptions(hostfile=sys.argv[2], ssh=sys.argv[3])) as executor:
    executor.submit(Launch(argv=(line,), shell=True, env={"WHERE": sys.argv[1]})).result()
"""


def test_nothing_outlives_a_killed_tuner_on_hosts(hosts: SshHosts, tmp_path: Path) -> None:
    arguments = [str(tmp_path), str(hosts.hostfile(1)), hosts.ssh]
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments], start_new_session=True)
    try:
        until((tmp_path / "ready").exists, "the trial runs")
        process.send_signal(signal.SIGKILL)
        process.wait()
        until(lambda: not [pid for name in hosts.names for pid in hosts.running(name)], "nothing is left", 60)
    finally:
        process.kill()
        process.wait()


def test_a_study_on_hosts_is_killed_and_resumed(hosts: SshHosts, tmp_path: Path) -> None:
    options = {"hostfile": str(hosts.hostfile(1)), "ssh": hosts.ssh, "cpus": 1}
    running = lambda: [pid for name in hosts.names for pid in hosts.running(name)]  # noqa: E731
    kill_and_resume(tmp_path, {"executor": "hosts", "options": options}, lambda: not running())


def test_files_travel_where_no_folder_is_shared(hosts: SshHosts, tmp_path: Path) -> None:
    data, there = tmp_path / "data", tmp_path / "there"
    data.mkdir()
    (data / "input.txt").write_text("carried")
    line = f"cat {data}/input.txt; echo kept > left.txt; pwd > where.txt"
    with made(hosts, folder=tmp_path / "results", shared=False, remote_folder=str(there), copy=(str(data),)) as executor:
        completed = executor.submit(shell(line, outputs=("where.txt",))).result(120)
    assert completed.stdout == "carried"
    assert completed.outputs["where.txt"].startswith(str(there))
    assert Path(completed.folder).is_relative_to(tmp_path / "results")
    assert (Path(completed.folder) / "left.txt").read_text() == "kept\n"
