"""Real processes of PyTorch: every family trains the same, and a study over them finds its way. Needs PyTorch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from training_running import tuned

import autoscout
from autoscout.backends.pytorch import PyTorchBackend
from autoscout.core.config import Config
from autoscout.core.launch import Launch
from autoscout.core.task import Task
from autoscout.core.trial import Measurement, Status
from autoscout.execute.local import LocalExecutor, LocalOptions

pytestmark = [pytest.mark.adapters, pytest.mark.slow]

CPU = {"device": "cpu", "gpus": 0, "processes": 2, "cores": 2, "native_bf16": True, "memory_gb": 8.0}
SMALL = {"model": "micro", "most_steps": 6, "loss_steps": 5, "limit_s": 600.0}
SOURCE = str(Path(autoscout.__file__).parents[1])

SCRIPT = """
import os, torch
from torch import distributed
from autoscout import training
settings = training.config()
distributed.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1), bucket_cap_mb=settings["bucket_mb"])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rows = torch.randn(16, 8, generator=torch.Generator().manual_seed(int(os.environ["RANK"])))
for _ in range(200):
    mean = 0.0
    for part in rows.split(settings["micro_batch"]):
        loss = (model(part) - 1).square().mean() * len(part) / len(rows)
        loss.backward()
        mean += float(loss)
    optimizer.step()
    optimizer.zero_grad()
    training.step(loss=mean, tokens=16, samples=16)
"""


@pytest.fixture(autouse=True)
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOSCOUT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")  # tests share their cores, and spinning threads would wait for each other
    monkeypatch.setenv("PYTHONPATH", SOURCE)


def measure(task: Task, folder: Path, **wanted: Any) -> Measurement:
    backend = PyTorchBackend()
    space = backend.space(task)
    config = space.project({**space.default(), **wanted}, Config(wanted))
    assert all(config[name] == value for name, value in wanted.items())
    launch: Launch = backend.render(config, task, seed=1)
    with LocalExecutor(LocalOptions(folder=folder)) as executor:
        return backend.parse(executor.submit(replace(launch, resources=replace(launch.resources, cpus=1))).result(600.0), task)


def test_every_family_learns_the_same(tmp_path: Path) -> None:
    """The same global batch from the same weights: losses agree, or a layout computes something else."""
    task = PyTorchBackend().task({"workload": SMALL, "hardware": CPU})
    families: dict[str, dict[str, Any]] = {
        "ddp": {"dp": 2},
        "ddp, accumulated": {"micro_batch": 1, "defer_sync": True, "recompute": "half", "loss_chunks": 4, "optimizer": "fused"},
        "fsdp2": {"data_parallel": "fsdp2", "recompute": "full"},
        "fsdp2, accumulated": {"data_parallel": "fsdp2", "wrap": "root", "micro_batch": 2, "defer_sync": True, "optimizer": "foreach"},
        "tensor": {"tp": 2, "optimizer": "fused"},
        "gpipe": {"pp": 2, "schedule": "gpipe", "micro_batch": 4},
        "1f1b": {"pp": 2, "schedule": "1f1b", "micro_batch": 2},
        "interleaved": {"pp": 2, "schedule": "interleaved", "micro_batch": 2, "recompute": "full"},
    }
    found = {name: measure(task, tmp_path / "trials", **wanted) for name, wanted in families.items()}
    assert {name: one.status for name, one in found.items()} == dict.fromkeys(families, Status.OK), [one.reason for one in found.values()]
    expected = found["ddp"].metrics["loss_after"]
    assert {name: one.metrics["loss_after"] for name, one in found.items()} == pytest.approx(dict.fromkeys(families, expected), rel=1e-4)


def test_what_the_space_forbids_pytorch_refuses(tmp_path: Path) -> None:
    """The rule is no superstition: DDP on a model with sharded parameters fails, and is told apart from a crash."""
    task = PyTorchBackend().task({"workload": SMALL, "hardware": {**CPU, "processes": 4}})
    backend = PyTorchBackend()
    config = backend.space(task).default()
    launch = backend.render(config, task, seed=1)
    given = json.loads(launch.files["train_input.json"])
    given["config"] |= {"dp": 2, "tp": 2}
    with LocalExecutor(LocalOptions(folder=tmp_path / "trials")) as executor:
        files = {**launch.files, "train_input.json": json.dumps(given)}
        done = backend.parse(executor.submit(replace(launch, files=files)).result(600.0), task)
    assert done.status is Status.INVALID, done.reason
    assert "DTensor" in done.reason


def test_a_script_under_torchrun_is_tuned_and_handed_over(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    command = f"{sys.executable} -m torch.distributed.run --nproc-per-node 2 train.py"
    knobs = {"micro_batch": {"values": [2, 4, 8, 16], "default": 16}, "bucket_mb": [25, 1]}
    campaign = {
        "system": "pytorch",
        "name": "own",
        "workload": {"command": command, "cwd": str(tmp_path), "knobs": knobs, "loss_steps": 5, "most_steps": 8},
        "hardware": CPU,
        "set": {"bucket_mb": 25},
        "budget": {"trials": 3},
        "finals": {"rounds": 1, "finalists": 1, "simplify": False},
        "measure": {"dirty_repeats": 0},
    }
    outcome = autoscout.tune(campaign, output_dir=tmp_path / "results")
    assert outcome.summary.answer is not None
    worked = [trial for trial in outcome.trials if trial.measurement.status in (Status.OK, Status.BOUNDED)]
    assert len({trial.config for trial in worked}) == 3, [trial.measurement.reason for trial in outcome.trials]
    assert all(trial.measurement.metrics["tokens_per_s"] > 0 for trial in worked)
    folder = tmp_path / "results" / "own" / "best"
    environment = {name: value for name, value in os.environ.items() if name != "AUTOSCOUT_STEPS"}
    again = subprocess.run(["sh", str(folder / "run.sh")], env=environment, capture_output=True, text=True, timeout=600)
    assert again.returncode == 0, again.stderr


def test_the_command_finds_the_family_that_wins(tmp_path: Path) -> None:
    """`autoscout tune` with a small budget: real processes of DDP, FSDP2, tensor and pipeline parallelism."""
    budget = {"trials": 4}
    report, trials = tuned(tmp_path, {"system": "pytorch", "name": "families", "workload": SMALL, "hardware": CPU, "budget": budget})
    speeds = {family(trial.config): trial.measurement.metrics.get("tokens_per_s", 0.0) for trial in trials if trial.proposal.repeat == 0}
    assert set(speeds) == {"ddp", "fsdp2", "tensor", "pipeline"}
    assert all(speeds.values()), [trial.measurement.reason for trial in trials]
    fastest = max(speeds, key=lambda name: speeds[name])
    assert family(report["answer"]) in {fastest, "ddp"}, "the fastest, or the default where the final shows no gain"
    assert (tmp_path / "families" / "best" / "run.sbatch").exists()


def family(config: Mapping[str, Any]) -> str:
    return "tensor" if config["tp"] > 1 else "pipeline" if config["pp"] > 1 else str(config["data_parallel"])


SEVERAL: list[dict[str, Any]] = [
    {"micro_batch": 4},
    {"micro_batch": 1, "defer_sync": True, "loss_chunks": 4},
    {"recompute": "full", "optimizer": "fused"},
    {"attention": "math", "precision": "bf16"},
]


def shared_launch(task: Task, wanted: list[dict[str, Any]]) -> tuple[Launch, list[Config]]:
    backend = PyTorchBackend()
    space = backend.space(task)
    configs = [space.project({**space.default(), **one}, Config(one)) for one in wanted]
    assert len({backend.process_of(config, task) for config in configs}) == 1
    launch = backend.render_together(configs, task, seed=1)
    return replace(launch, resources=replace(launch.resources, cpus=1)), configs


def test_configurations_that_share_processes_learn_what_they_learn_alone(tmp_path: Path) -> None:
    task, backend = PyTorchBackend().task({"workload": SMALL, "hardware": CPU}), PyTorchBackend()
    launch, _ = shared_launch(task, SEVERAL)
    with LocalExecutor(LocalOptions(folder=tmp_path / "trials")) as executor:
        completed = executor.submit(launch).result(600.0)
    found = [backend.parse(part, task) for part in backend.divide(completed, len(SEVERAL)) if part is not None]
    assert [one.status for one in found] == [Status.OK] * len(SEVERAL), ([one.reason for one in found], completed.stderr)
    alone = measure(task, tmp_path / "alone", **SEVERAL[1])
    assert found[1].metrics["loss_after"] == pytest.approx(alone.metrics["loss_after"], rel=1e-6), "the same weights and data as alone"
    assert [one.metrics["loss_after"] for one in found] == pytest.approx([alone.metrics["loss_after"]] * len(found), rel=1e-2)
    assert all(one.conditions["saved_s"] > 0 for one in found[1:])


def test_a_peak_of_memory_is_forgotten_between_two_configurations() -> None:
    import torch

    from autoscout import training
    from autoscout.training.protocol import reset_memory

    large = torch.ones(100 * 2**20)  # 0.4 GiB
    before = training.peak_memory_gib()
    del large
    assert reset_memory()
    assert training.peak_memory_gib() < before - 0.2


def test_a_study_that_is_killed_leaves_no_shared_process_behind(tmp_path: Path) -> None:
    task = PyTorchBackend().task({"workload": {**SMALL, "most_steps": 10_000, "settled": 1e-9, "enough_s": 1e6}, "hardware": CPU})
    launch, _ = shared_launch(task, SEVERAL[:2])
    program = (
        "import json, sys; from autoscout.core.launch import Launch; from autoscout.execute.local import LocalExecutor, LocalOptions; "
        "launch = Launch(argv=tuple(json.loads(sys.argv[1])), files=json.loads(sys.argv[2])); "
        "LocalExecutor(LocalOptions(folder=sys.argv[3])).submit(launch).result()"
    )
    command = [sys.executable, "-c", program, json.dumps(launch.argv), json.dumps(dict(launch.files)), str(tmp_path)]
    with subprocess.Popen(command) as study:
        until(lambda: sum(map(trains, tmp_path.rglob("rank*.jsonl"))) == 2)
        assert len(training_in(tmp_path)) == 2
        study.send_signal(signal.SIGKILL)
    until(lambda: not training_in(tmp_path))


def training_in(folder: Path) -> list[int]:
    """Processes that train in a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"AUTOSCOUT_STEPS={folder}".encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def trains(steps: Path) -> bool:
    return '"loss"' in steps.read_text()


def until(true: Any) -> None:
    deadline_s = time.monotonic() + 120
    while not true():
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
