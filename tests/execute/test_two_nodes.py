"""Launches on several machines: told where the others are, ended together; and a two-node training run, tuned end to end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autoscout.core.launch import Launch, Resources
from autoscout.execute.slurm.executor import SlurmExecutor
from autoscout.execute.slurm.options import SlurmOptions
from autoscout.testing.slurm import SlurmCluster

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


TRAIN = """
import os, sys, time, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="env://", rank=int(os.environ["NODE_RANK"]), world_size=int(os.environ["NNODES"]))
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)]), bucket_cap_mb=float(sys.argv[2]))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch = int(sys.argv[1])
for step in range(6):
    if step == 2:
        started = time.perf_counter()
    optimizer.zero_grad()
    model(torch.ones(batch, 64)).square().mean().backward()
    optimizer.step()
rate = 4 * batch * dist.get_world_size() / (time.perf_counter() - started)
total = torch.tensor([float(dist.get_rank())])
dist.all_reduce(total)
print(f"samples_per_s={rate:.3f} ranks={total.item():.0f}")
dist.destroy_process_group()
"""

CAMPAIGN = """
system: command
name: two-nodes
workload:
  command: "{python} {script} {{batch}} {{bucket_mb}}"
  resources: {{nodes: 2}}
  metrics: {{samples_per_s: {{regex: 'samples_per_s=([0-9.]+)'}}}}
goal: {{metric: samples_per_s, direction: maximize}}
space: {{knobs: {{batch: {{values: [1, 64], default: 1}}, bucket_mb: {{values: [0.01, 25.0], default: 25.0}}}}}}
budget: {{trials: 4}}
execute: {{executor: slurm, options: {{mode: allocation, nodes: 2, cpus_per_node: 2}}}}
"""


@pytest.mark.soak
@pytest.mark.adapters
def test_training_on_two_nodes_is_tuned_end_to_end(slurm: SlurmCluster, tmp_path: Path) -> None:
    """A larger batch trains more samples in a second, by far more than the noise."""
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "campaign.yaml").write_text(CAMPAIGN.format(python=sys.executable, script=tmp_path / "train.py"))
    ran = subprocess.run(
        [sys.executable, "-m", "autoscout", "tune", "campaign.yaml", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    lines = [line for path in (tmp_path / "autoscout_results").rglob("trials.jsonl") for line in path.read_text().splitlines()]
    measured = [json.loads(line) for line in lines]
    assert all(len(set(one["machine"].split(","))) == 2 for one in measured if one["status"] == "ok")
    assert any(one["status"] == "ok" for one in measured)
    assert not slurm.jobs()
