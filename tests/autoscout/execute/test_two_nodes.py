"""Launches on several machines: told where the others are, ended together; and a two-node training run, tuned end to end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from _slurm import SlurmCluster
from autoscout.core.launch import Launch, Resources
from autoscout.execute.slurm.executor import SlurmExecutor
from autoscout.execute.slurm.options import SlurmOptions

TELL = 'echo "$NODE_RANK of $NNODES at $MASTER_ADDR:$MASTER_PORT $PET_NODE_RANK"; cat hostfile; echo "$SLURMD_NODENAME" >> "$WHERE/nodes"'


def shell(line: str, **launch: Any) -> Launch:
    return Launch(argv=(line,), shell=True, **launch)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["job", "allocation"])
def test_each_machine_is_told_where_the_others_are(slurm: SlurmCluster, tmp_path: Path, mode: str) -> None:
    with SlurmExecutor(SlurmOptions(mode=mode, nodes=2)) as executor:
        done = executor.submit(shell(TELL, env={"WHERE": str(tmp_path)}, resources=Resources(nodes=2))).result(120)
    assert done.returncode == 0, done.log_tail
    first, *hosts = done.stdout.splitlines()
    assert first.startswith("0 of 2 at ")
    assert first.endswith(" 0")
    assert len(hosts) == 2
    assert all(line.endswith("slots=1") for line in hosts)
    assert len(set((tmp_path / "nodes").read_text().split())) == 2
    assert len(done.machine.split(",")) == 2


@pytest.mark.slow
def test_a_process_that_dies_takes_the_others_with_it(slurm: SlurmCluster, tmp_path: Path) -> None:
    line = 'if [ $NODE_RANK = 1 ]; then echo broken >&2; exit 3; fi; echo $$ > "$WHERE/pid"; sleep 3600'
    with SlurmExecutor(SlurmOptions(grace_s=0.5)) as executor:
        done = executor.submit(shell(line, env={"WHERE": str(tmp_path)}, resources=Resources(nodes=2))).result(120)
    assert done.returncode == 3
    assert "broken" in done.stderr
    pid = tmp_path / "pid"
    assert not pid.exists() or not Path(f"/proc/{pid.read_text().strip()}").exists()


@pytest.mark.slow
def test_a_launch_that_loses_one_of_its_machines_runs_again_on_others(slurm: SlurmCluster, tmp_path: Path) -> None:
    """What runs on the other machine is ended first: it must not run twice."""
    starts = tmp_path / "starts"
    line = 'echo "$SLURMD_NODENAME $$" >> "$WHERE/starts"; if [ $(wc -l < "$WHERE/starts") -le 2 ]; then sleep 3600; fi; echo done'
    with SlurmExecutor(SlurmOptions(silence_s=10, grace_s=0.5)) as executor:
        job = executor.submit(shell(line, env={"WHERE": str(tmp_path)}, resources=Resources(nodes=2)))
        slurm.wait_until(lambda: starts.exists() and len(starts.read_text().splitlines()) == 2, "both run")
        (first, survivor), (lost, _) = (row.split() for row in starts.read_text().splitlines())
        slurm.kill_node(lost)
        try:
            done = job.result(180)
        finally:
            slurm.start_node(lost)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.error
    assert first != lost
    assert lost not in done.machine.split(",")
    assert len(starts.read_text().splitlines()) == 4, "not lost, and not doubled"
    assert not Path(f"/proc/{survivor}").exists()
    slurm.wait_until(lambda: slurm.states()[lost] == "idle", "the node is back")


TRAIN = """
import os, sys, time, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
torch.set_num_threads(1)
rank, world = (os.environ[name] for name in (("RANK", "WORLD_SIZE") if "RANK" in os.environ else ("NODE_RANK", "NNODES")))
dist.init_process_group("gloo", rank=int(rank), world_size=int(world))
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch = int(sys.argv[1])
for step in range(6):
    if step == 2:
        started = time.perf_counter()
    optimizer.zero_grad()
    model(torch.ones(batch, 64)).square().mean().backward()
    optimizer.step()
rate = 4 * batch * dist.get_world_size() / (time.perf_counter() - started)
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
print(f"samples_per_s={rate:.3f} ranks={total.item():.0f}", flush=True)
dist.barrier()
os._exit(0)  # threads of gloo now and then abort a process that ends in the ordinary way
"""

CAMPAIGN = """
system: command
name: two-nodes
workload:
  command: "{python} {script} {{batch}}"
  resources: {{nodes: 2}}
  metrics: {{samples_per_s: {{regex: 'samples_per_s=([0-9.]+)'}}, ranks: {{regex: 'ranks=([0-9]+)'}}}}
goal: {{metric: samples_per_s, direction: maximize}}
space: {{knobs: {{batch: {{values: [1, 256], default: 1}}}}}}
budget: {{trials: 2}}
measure: {{dirty_repeats: 0}}
finals: {{rounds: 1, finalists: 1, simplify: false}}
execute: {{executor: slurm, options: {{mode: allocation, nodes: 2}}}}
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    pytest.importorskip("torch")
    path = tmp_path / "train.py"
    path.write_text(TRAIN)
    return path


@pytest.mark.slow
@pytest.mark.adapters
def test_torchrun_on_two_nodes_needs_no_argument(slurm: SlurmCluster, script: Path) -> None:
    launch = Launch(argv=(sys.executable, "-m", "torch.distributed.run", str(script), "1"), resources=Resources(nodes=2))
    with SlurmExecutor(SlurmOptions(mode="allocation", nodes=2)) as executor:
        done = executor.submit(launch).result(300)
    assert done.returncode == 0, done.log_tail
    assert "ranks=3" in done.stdout, "the first and the second have met"


@pytest.mark.slow
@pytest.mark.adapters
def test_training_on_two_nodes_is_tuned_end_to_end(slurm: SlurmCluster, script: Path, tmp_path: Path) -> None:
    """A larger batch trains more samples in a second, by far more than the noise."""
    (tmp_path / "campaign.yaml").write_text(CAMPAIGN.format(python=sys.executable, script=script))
    command = [sys.executable, "-m", "autoscout", "tune", "campaign.yaml", "--json"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stderr[-3000:]
    measured = [json.loads(line) for path in tmp_path.rglob("trials.jsonl") for line in path.read_text().splitlines()]
    assert {one["status"] for one in measured} == {"ok"}
    assert all(len(set(one["machine"].split(","))) == 2 for one in measured)
    assert {one["metrics"]["ranks"] for one in measured} == {3.0}
    rates = {batch: [one["metrics"]["samples_per_s"] for one in measured if one["config"]["batch"] == batch] for batch in (1, 256)}
    assert min(rates[256]) > max(rates[1])
    assert not slurm.jobs()
