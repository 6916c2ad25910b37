"""Training backends on two machines, over Slurm and over ssh: one run, measured on the first, with hand-overs that start it again."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from _slurm import SlurmCluster
from _ssh_hosts import SshHosts
from _ssh_hosts import missing as no_hosts
from autoscout.core import plugins
from autoscout.core.errors import LaunchError
from autoscout.core.launch import Launch, Resources
from autoscout.core.protocols import Backend, Executor
from autoscout.core.task import Task
from autoscout.core.trial import Measurement
from autoscout.execute.hosts.executor import HostsExecutor
from autoscout.execute.hosts.options import HostsOptions
from autoscout.execute.local import LocalExecutor
from autoscout.execute.slurm.executor import SlurmExecutor
from autoscout.execute.slurm.options import SlurmOptions
from autoscout.training.runner import free_port

pytestmark = pytest.mark.slow

NEEDED = {"pytorch": "torch", "deepspeed": "deepspeed", "megatron": "megatron.core"}
CPU = {"device": "cpu", "gpus": 0, "nodes": 2}
SHORT = {"model": "micro", "most_steps": 6, "loss_steps": 4, "hang_s": 300}
BUILT_IN = [pytest.param(name, marks=pytest.mark.adapters) for name in NEEDED]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    if reason := no_hosts():
        pytest.skip(reason)
    with SshHosts(tmp_path_factory.mktemp("hosts"), count=2) as cluster:
        yield cluster


def backend_of(name: str) -> Backend:
    try:
        there = importlib.util.find_spec(NEEDED[name]) is not None
    except ModuleNotFoundError:
        there = False
    if not there:
        pytest.skip(f"backend {name}: needs {NEEDED[name]}")
    if name == "deepspeed" and not (shutil.which("c++") and Path(sysconfig.get_path("include"), "Python.h").exists()):
        pytest.skip("DeepSpeed compiles a library on a CPU: needs a C++ compiler and Python.h")
    kind: type[Backend] = plugins.get("backend", name)
    return kind()


def measured(backend: Backend, task: Task, executor: Executor, **changes: Any) -> Measurement:
    space: Any = backend.space(task)
    config = space.project({**space.default(), **changes}, changes)
    completed = executor.submit(backend.render(config, task, seed=1)).result(500)
    measurement = backend.parse(completed, task)
    assert measurement.ok, (measurement.reason, completed.log_tail)
    assert len(set(completed.machine.split(","))) == 2
    return measurement


def one_node(backend: Backend, workload: dict[str, Any]) -> dict[str, float]:
    """What the same two processes learn on this machine alone."""
    task = backend.task({"workload": workload, "hardware": {**CPU, "nodes": 1, "processes": 2}})
    with LocalExecutor() as executor:
        space: Any = backend.space(task)
        measurement = backend.parse(executor.submit(backend.render(space.default(), task, seed=1)).result(500), task)
    assert measurement.ok, (measurement.reason, measurement.log_tail)
    return dict(measurement.metrics)


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_built_in_model_trains_on_two_nodes_of_slurm(slurm: SlurmCluster, name: str) -> None:
    """It learns what two processes of one machine learn: the two have met, and each has trained on its half."""
    backend = backend_of(name)
    task = backend.task({"workload": SHORT, "hardware": CPU})
    assert "on 2 nodes of 1" in backend.load(task)
    with SlurmExecutor(SlurmOptions(mode="allocation", nodes=2, cpus_per_node=2)) as executor:
        two = measured(backend, task, executor).metrics
    alone = one_node(backend, SHORT)
    assert two["loss_after"] == pytest.approx(alone["loss_after"], rel=1e-4)
    work = {where["tokens_per_s"] * where["step_ms"] / 1000 for where in (two, alone)}
    assert max(work) == pytest.approx(min(work), rel=0.01), "tokens of both machines count"
    assert not slurm.jobs()


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_built_in_model_trains_on_two_hosts(hosts: SshHosts, tmp_path: Path, name: str) -> None:
    backend = backend_of(name)
    listed = dict.fromkeys(hosts.names, 1)
    task = backend.task({"workload": SHORT, "hardware": {**CPU, "hosts": listed}})
    options = HostsOptions(hostfile=hosts.hostfile(1), ssh=hosts.ssh, folder=tmp_path / "study", gpus=False)
    with HostsExecutor(options) as executor:
        measurement = measured(backend, task, executor)
    assert measurement.metrics["loss_after"] > 0


TRAIN = """
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from autoscout import training

batch = training.config().get("micro_batch") or 2
torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
share = 16 // dist.get_world_size()
rows = torch.arange(16 * 8).reshape(16, 8).div(128)[dist.get_rank() * share :][:share]
for step in range(8):
    total = 0.0
    for piece in rows.split(batch):
        loss = model(piece).square().mean() * len(piece) / share
        loss.backward()
        total += loss.item()
    optimizer.step()
    optimizer.zero_grad()
    training.step(loss=total, tokens=share * 8)
everybody = torch.ones(1)
dist.all_reduce(everybody)
if dist.get_rank() == 0:
    with open(os.environ.get("WROTE", os.devnull), "a") as file:
        file.write(f"{int(everybody.item())} processes, node {os.environ['NODE_RANK']}, batch {batch}\\n")
dist.barrier()
os._exit(0)  # threads of gloo now and then abort a process that ends in the ordinary way
"""

CAMPAIGN = """
system: pytorch
name: two-nodes
workload: {{command: "torchrun {script}", knobs: {{micro_batch: [1, 2, 4]}}, most_steps: 4, loss_steps: 4, hang_s: 300, limit_s: 500}}
hardware: {{device: cpu, nodes: 2, cores: 2}}
search: {{searcher: grid}}
budget: {{trials: 2}}
measure: {{dirty_repeats: 0}}
finals: {{rounds: 0}}
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    pytest.importorskip("torch")
    path = tmp_path / "train.py"
    path.write_text(TRAIN)
    (tmp_path / "campaign.yaml").write_text(CAMPAIGN.format(script=path))
    return path


def tuned(folder: Path, *flags: str) -> list[dict[str, Any]]:
    """The trials of a study that ran in a folder."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "autoscout", "tune", "campaign.yaml", *flags]
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert "on 2 nodes of 1" in next(folder.rglob("report.html")).read_text()
    trials = [json.loads(line) for path in folder.rglob("trials.jsonl") for line in path.read_text().splitlines()]
    assert {one["status"] for one in trials} == {"ok"}, [one.get("reason") for one in trials]
    assert all(len(set(one["machine"].split(","))) == 2 for one in trials)
    assert {round(one["metrics"]["tokens_per_s"] * one["metrics"]["step_ms"] / 1000) for one in trials} == {16 * 8}, "of both machines"
    return trials


@pytest.mark.adapters
def test_a_script_is_tuned_on_two_nodes_of_slurm_and_handed_over(slurm: SlurmCluster, script: Path, tmp_path: Path) -> None:
    """`torchrun train.py` without any argument; the job script that is handed over starts it on two nodes again."""
    tuned(tmp_path, "--executor", "slurm")
    assert not slurm.jobs()
    best = next(tmp_path.rglob("best/run.sbatch")).parent
    wrote = tmp_path / "wrote"
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    environment = {**os.environ, **meeting, "WROTE": str(wrote), "OMP_NUM_THREADS": "1"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    alone = subprocess.run(["sh", "run.sh"], cwd=best, capture_output=True, text=True, timeout=60)
    assert alone.returncode == 2
    assert "It ran on 2 machines. With Slurm: sbatch run.sbatch" in alone.stderr
    sent = subprocess.run(["sbatch", "--wait", "run.sbatch"], cwd=best, env=environment, capture_output=True, text=True, timeout=300)
    said = "".join(path.read_text() for path in best.glob("slurm-*.out"))
    assert sent.returncode == 0, (sent.stderr, said)
    assert wrote.read_text().startswith("2 processes, node 0, batch ")


@pytest.mark.adapters
def test_a_hostfile_alone_trains_on_its_hosts(hosts: SshHosts, script: Path, tmp_path: Path) -> None:
    """torchrun is that of AutoScout's own environment, though a login over ssh does not know its folder."""
    assert shutil.which("torchrun", path="/usr/bin:/bin") is None, "else the test shows nothing"
    tuned(tmp_path, "--max-trials", "1", "--hostfile", str(hosts.hostfile(1)), "--executor-option", f"ssh={hosts.ssh}")
    best = next(tmp_path.rglob("best/run_hosts.sh")).parent
    text = (best / "run.sh").read_text()
    (best / "run.sh").write_text(text.replace("torchrun ", 'echo "$PET_NODE_RANK of $PET_NNODES, $MASTER_ADDR" # '))
    sent = subprocess.run(
        ["sh", "run_hosts.sh"], cwd=best, env={**os.environ, "SSH": hosts.ssh}, capture_output=True, text=True, timeout=120
    )
    assert sent.returncode == 0, sent.stderr
    assert sorted(sent.stdout.splitlines()) == [f"0 of 2, {hosts.names[0]}", f"1 of 2, {hosts.names[0]}"]


def test_one_machine_refuses_and_names_the_next_step(tmp_path: Path) -> None:
    """A study whose executor has one machine does not train on one and call it two."""
    launch = Launch(argv=("true",), resources=Resources(nodes=2))
    with LocalExecutor() as executor:
        with pytest.raises(LaunchError, match="--hostfile FILE for machines that ssh reaches, or --executor slurm"):
            executor.submit(launch)
        reaching = Launch(argv=("true",), resources=Resources(nodes=2, first_only=True))
        assert executor.submit(reaching).result(60).returncode == 0, "whose command reaches the others by itself"


def test_a_launcher_that_reaches_the_others_runs_once(slurm: SlurmCluster, tmp_path: Path) -> None:
    """It gets all machines, and a file that names them; it is not told a rank, which its processes would inherit."""
    line = f'echo "$MASTER_ADDR ${{NODE_RANK-none}}" >> {tmp_path}/ran; cat hostfile'
    launch = Launch(argv=(line,), shell=True, resources=Resources(nodes=2, first_only=True))
    with SlurmExecutor(SlurmOptions()) as executor:
        done = executor.submit(launch).result(120)
    assert done.returncode == 0, done.log_tail
    address, rank = (tmp_path / "ran").read_text().split()
    assert rank == "none"
    assert address
    assert len(done.stdout.splitlines()) == 2
    assert len(set(done.machine.split(","))) == 2
