"""The Ray executor on a real cluster of three nodes: the shipped suite, lost nodes, killed tuners, and a head that goes away."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from _killed_study import kill_and_resume
from autoscout.core.errors import LaunchError
from autoscout.core.launch import Launch, Resources
from autoscout.execute._shared.threads import THREAD_VARIABLES
from autoscout.execute.ray.executor import RayExecutor
from autoscout.execute.ray.options import RayOptions
from autoscout.load.server import is_listening
from autoscout.testing.executor import ExecutorSuite

pytestmark = [pytest.mark.adapters, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes with CPUs only, and one with a GPU and few CPUs."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("RAY_raylet_start_wait_time_s", "120")
        environment.setenv("RAY_USAGE_STATS_ENABLED", "0")
        for name in THREAD_VARIABLES:
            environment.delenv(name, raising=False)
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "num_gpus": 0, "include_dashboard": False})
        made.add_node(num_cpus=2, num_gpus=0)
        made.add_node(num_cpus=1, num_gpus=1, resources={"special": 1})
        yield made
        made.shutdown()


def executor_on(cluster: Any, **options: Any) -> RayExecutor:
    return RayExecutor(RayOptions(address=cluster.address, grace_s=0.5, **options))


def until(condition: Callable[[], object], what: str, patience_s: float = 90.0) -> None:
    end_s = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < end_s, what
        time.sleep(0.1)


def gone(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def shell(line: str, **launch: Any) -> Launch:
    return Launch(argv=(line,), shell=True, **launch)


class TestThreeNodes(ExecutorSuite):
    @pytest.fixture
    def executor(self, cluster: Any) -> Iterator[RayExecutor]:
        with executor_on(cluster, slots=2) as executor:
            yield executor


def test_more_trials_than_fit_all_end(cluster: Any) -> None:
    """Sizes change, so that idle workers of one size stand in the way of another."""
    sizes = [Resources(cpus=cpus) for cpus in (1, 2, 1, 1, 2, 1, 2, 1, 1, 1, 2, 1)]
    with executor_on(cluster, slots=12) as executor:
        jobs = [executor.submit(Launch(argv=("true",), resources=size)) for size in sizes]
        assert [job.result(300).returncode for job in jobs] == [0] * len(jobs)


def test_resources_of_two_nodes_do_not_add_up(cluster: Any) -> None:
    with executor_on(cluster) as executor:
        with pytest.raises(LaunchError, match="has all of it together"):
            executor.submit(Launch(argv=("true",), resources=Resources(cpus=2, gpus=1)))
        with pytest.raises(LaunchError, match="runs each launch on one machine"):
            executor.submit(Launch(argv=("true",), resources=Resources(nodes=2)))
    with executor_on(cluster, resources={"special": 0.5}) as executor, pytest.raises(LaunchError, match="more than 1"):
        executor.submit(Launch(argv=("true",), resources=Resources(cpus=2)))


def test_a_trial_has_cores_of_its_own(cluster: Any) -> None:
    with executor_on(cluster) as executor:
        done = executor.submit(shell("nproc; echo ${OMP_NUM_THREADS:-unset}", resources=Resources(cpus=1))).result(120)
        whole = executor.submit(shell("echo ${OMP_NUM_THREADS:-unset}", resources=Resources(cpus=2))).result(120)
    if (os.cpu_count() or 1) > 1:
        assert done.stdout.split() == ["1", "1"]
        assert done.conditions["cores"] == 1.0
    assert whole.stdout.strip() in ("unset", "2"), "not what Ray set for its worker"
    assert "/" in done.machine


def test_a_trial_whose_node_dies_runs_again_elsewhere_and_leaves_nothing(cluster: Any, tmp_path: Path) -> None:
    doomed = cluster.add_node(num_cpus=2, resources={"doomed": 2, "elsewhere": 1})
    daemon = 'setsid sleep 3600 & echo $! > "$WHERE/child"; wait'
    line = f'echo x >> "$WHERE/starts"; if [ $(wc -l < "$WHERE/starts") = 1 ]; then {daemon}; fi; echo done'
    with executor_on(cluster, resources={"elsewhere": 0.5}) as executor:
        job = executor.submit(shell(line, env={"WHERE": str(tmp_path)}))
        until((tmp_path / "child").exists, "the trial runs")
        cluster.add_node(num_cpus=2, resources={"elsewhere": 1})
        child = int((tmp_path / "child").read_text())
        cluster.remove_node(doomed, allow_graceful=False)
        completed = job.result(180)
    assert (completed.returncode, completed.stdout) == (0, "done\n")
    assert (tmp_path / "starts").read_text() == "x\nx\n"
    until(lambda: gone(child), "its daemon is gone", 60)


PROGRAM = """
import sys
from autoscout.core.launch import Launch
from autoscout.execute.ray.executor import RayExecutor
from autoscout.execute.ray.options import RayOptions
line = 'setsid sleep 3600 & echo $! > "$WHERE/child"; echo $$ > "$WHERE/pid"; touch "$WHERE/ready"; wait'
with RayExecutor(RayOptions()) as executor:
    job = executor.submit(Launch(argv=(line,), shell=True, env={"WHERE": sys.argv[1]}))
    print("first:", job.result().cancelled, flush=True)
    executor.submit(Launch(argv=("true",)))
"""


def program(address: str, folder: Path, text: str = PROGRAM) -> subprocess.Popen[str]:
    """A tuner that finds the cluster by Ray's own variable."""
    environment = {**os.environ, "RAY_ADDRESS": address}
    return subprocess.Popen(
        [sys.executable, "-c", text, str(folder)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_daemons_of_trials_do_not_outlive_a_killed_tuner(cluster: Any, tmp_path: Path) -> None:
    process = program(cluster.address, tmp_path)
    try:
        until((tmp_path / "ready").exists, "the trial runs", 120)
        pids = [int((tmp_path / name).read_text()) for name in ("pid", "child")]
        process.send_signal(signal.SIGKILL)
        until(lambda: all(map(gone, pids)), "nothing is left of the trial", 60)
    finally:
        process.kill()
        process.communicate()


def idle(cluster: Any) -> bool:
    """Whether no actor has a CPU; asked by a program of its own, since a process has one connection to Ray."""
    look = "print(ray.available_resources().get('CPU'), ray.cluster_resources().get('CPU'))"
    asked = f"import ray, sys, logging; ray.init(sys.argv[1], logging_level=logging.ERROR); {look}"
    ran = subprocess.run([sys.executable, "-c", asked, cluster.address], capture_output=True, text=True, timeout=120, check=True)
    free, there = ran.stdout.split()[-2:]
    return free == there


def test_a_study_on_ray_is_killed_and_resumed(cluster: Any, tmp_path: Path) -> None:
    options = {"address": cluster.address}
    kill_and_resume(tmp_path, {"executor": "ray", "options": options}, lambda: idle(cluster))


def test_who_waits_for_room_is_told_and_runs_when_a_machine_joins(
    cluster: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autoscout.execute._shared.patience.FIRST_S", 1.0)
    with executor_on(cluster, resources={"later": 1.0}, elastic=True) as executor:
        job = executor.submit(Launch(argv=("true",)))
        until(lambda: "waits for a machine of the Ray cluster with 1 CPUs and 0 GPUs free" in caplog.text, "it says that it waits")
        assert not job.done()
        node = cluster.add_node(num_cpus=1, resources={"later": 1})
        assert job.result(120).returncode == 0
    cluster.remove_node(node)


def test_gpus_of_one_type_are_used_unless_told_otherwise(cluster: Any) -> None:
    """Two types of GPUs: the one with more of them is used, in both machines that have it."""
    added = [
        cluster.add_node(num_cpus=1, num_gpus=gpus, resources={f"accelerator_type:{kind}": 1}) for kind, gpus in (("T4", 2), ("L4", 1))
    ]
    launch = Launch(argv=("true",), resources=Resources(gpus=1))
    try:
        cluster.wait_for_nodes()
        with executor_on(cluster, resources={"accelerator_type:T4": 0.001}) as executor:
            small = executor.submit(launch).result(120).machine
        with executor_on(cluster) as executor:
            assert executor.submit(launch).result(120).machine == small
            assert executor.options.gpu_type == "T4"
            assert executor.submit(Launch(argv=("true",))).result(120).returncode == 0, "one without GPUs runs anywhere"
        with executor_on(cluster, kinds="any") as executor:
            executor.submit(launch).result(120)
            assert executor.options.gpu_type == ""
    finally:
        for node in added:
            cluster.remove_node(node)


def test_a_scheduler_is_tuned_on_a_cluster_by_its_address(cluster: Any, tmp_path: Path) -> None:
    question = ["sched", "tune", "--trace", "synthetic:philly:60:1:0", "--cluster", "4x8", "--trials", "2", "--output-dir", str(tmp_path)]
    where = ["--executor", "ray", "--executor-option", f"address={cluster.address}"]
    ran = subprocess.run([sys.executable, "-m", "autoscout", *question, *where], capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stderr[-3000:]
    trials = [json.loads(line) for path in tmp_path.rglob("trials.jsonl") for line in path.read_text().splitlines()]
    assert len(trials) >= 2
    assert all("/" in one["machine"] for one in trials), "a machine of the cluster"


LOSING = """
import sys
from autoscout.core.launch import Launch
from autoscout.execute.ray.executor import RayExecutor
from autoscout.execute.ray.options import RayOptions
line = 'echo x >> "$WHERE/starts"; if [ $(wc -l < "$WHERE/starts") = 1 ]; then sleep 3600; fi'
with RayExecutor(RayOptions(resources={"noisy": 0.5})) as executor:
    print(executor.submit(Launch(argv=(line,), shell=True, env={"WHERE": sys.argv[1]})).result().returncode)
    executor.submit(Launch(argv=("sleep 5",), shell=True)).result()
"""


def test_rays_own_words_about_a_lost_node_do_not_reach_the_terminal(cluster: Any, tmp_path: Path) -> None:
    doomed = cluster.add_node(num_cpus=1, resources={"noisy": 1})
    process = program(cluster.address, tmp_path, LOSING)
    try:
        until((tmp_path / "starts").exists, "the trial runs", 120)
        spare = cluster.add_node(num_cpus=1, resources={"noisy": 1})
        cluster.remove_node(doomed, allow_graceful=False)
        said, complaints = process.communicate(timeout=180)
    finally:
        process.kill()
        process.communicate()
    cluster.remove_node(spare)
    assert said == "0\n"
    assert complaints == ""


def test_a_cluster_is_reached_through_its_client_server(tmp_path: Path) -> None:
    """`ray://`: as from a laptop that is no machine of the cluster."""
    pytest.importorskip("grpc", reason="RAY CLIENT NOT TESTED: no grpcio; pip install 'ray[client]'")
    from ray.cluster_utils import Cluster

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    own = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, "ray_client_server_port": port})
    campaign = tmp_path / "campaign.yaml"
    campaign.write_text(CLIENT.format(address=f"ray://127.0.0.1:{port}"))
    try:
        until(lambda: is_listening(port), "its client server takes connections")  # later than the cluster is there
        ran = subprocess.run(
            [sys.executable, "-m", "autoscout", "tune", "campaign.yaml", "--json"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=240,
        )
    finally:
        own.shutdown()
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert json.loads(ran.stdout)["answer"] == {"x": 1}


CLIENT = """
system: command
workload: {{command: "echo took={{x}}", metrics: {{took: {{regex: 'took=([0-9]+)'}}}}}}
goal: {{metric: took, direction: minimize}}
space: {{knobs: {{x: {{values: [1, 2], default: 2}}}}}}
budget: {{trials: 2}}
measure: {{dirty_repeats: 0}}
finals: {{rounds: 3, finalists: 1, simplify: false}}
execute: {{executor: ray, options: {{address: "{address}"}}}}
"""


def test_a_head_that_goes_away_is_told(tmp_path: Path) -> None:
    from ray.cluster_utils import Cluster

    own = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    process = program(own.address, tmp_path)
    try:
        until((tmp_path / "ready").exists, "the trial runs", 120)
        own.shutdown()
        said, complaints = process.communicate(timeout=120)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 1
    assert "first: True" in said
    assert "the head of the Ray cluster does not answer any more" in complaints
