"""Training on several machines: how a run is divided, and two trial programs that are one run, as two machines would have them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from training_running import SCRIPT

import autoscout
from autoscout.backends.megatron import MegatronBackend
from autoscout.backends.pytorch import PyTorchBackend
from autoscout.core.errors import ConfigError
from autoscout.core.launch import Completed
from autoscout.core.trial import Measurement, Status
from autoscout.training.outcome import outcome
from autoscout.training.protocol import INPUT, RESULT, STAGE
from autoscout.training.runner import free_port

GPU = {"device": "cuda", "cores": 8, "native_bf16": True, "memory_gb": 80.0}


def faults_of(hardware: dict[str, Any], **workload: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        PyTorchBackend().task({"workload": workload, "hardware": {**GPU, **hardware}})
    return [str(fault) for fault in caught.value.faults]


def launch_of(hardware: dict[str, Any], command: str) -> Any:
    backend = PyTorchBackend()
    task = backend.task({"workload": {"command": command, "knobs": {"a": [1, 2]}}, "hardware": {**GPU, **hardware}})
    return backend.render(backend.space(task).default(), task, seed=0)


def test_gpus_without_nodes_are_divided_into_machines_of_eight() -> None:
    for gpus, node_gpus, nodes, each in ((16, 8, 2, 8), (12, 8, 2, 6), (8, 8, 1, 8), (8, 4, 2, 4)):
        hardware = {"gpus": f"{gpus}xH100", "node_gpus": node_gpus, "cores": 8}
        task = MegatronBackend().task({"workload": {"model": "gpt-350m", "global_batch": 48}, "hardware": hardware})
        resources = MegatronBackend().render(MegatronBackend().space(task).default(), task, seed=0).resources
        assert (resources.nodes, resources.gpus) == (nodes, each)
        assert (f" on {nodes} nodes of {each}:" in MegatronBackend().load(task)) == (nodes > 1)


@pytest.mark.parametrize(
    ("command", "first_only"),
    [
        ("torchrun --nproc-per-node {local_processes} train.py", False),
        ("accelerate launch train.py", False),
        ("OMP_NUM_THREADS=1 mpirun -np 16 python train.py", True),
        ("/usr/bin/srun --nodes 2 torchrun train.py", True),
        ("deepspeed train.py", True),
        ("python -m deepspeed.launcher.runner train.py", True),
        ("cd /tmp && python prepare.py && nohup srun --nodes 2 python train.py", True),
        ("torchrun train.py --launcher srun", False),
        ("deepspeed --no_ssh train.py", False),
        ("my_launcher --hosts {hostfile} train.py", True),
    ],
)
def test_a_launcher_is_started_on_each_machine_unless_it_reaches_the_others(command: str, first_only: bool) -> None:
    launch = launch_of({"gpus": 16, "nodes": 2, "hosts": {"one": 8, "two": 8}}, command)
    assert (launch.resources.nodes, launch.resources.gpus, launch.resources.first_only) == (2, 8, first_only)
    assert ("hostfile" in launch.files) == first_only


def test_accelerate_is_told_which_machine_it_is_on() -> None:
    """It reads neither its own rank nor the first machine's address from variables, as torchrun does."""
    for command in ("accelerate launch --num_processes 8 train.py", "accelerate launch train.py"):
        for nodes, told in ((2, True), (1, False)):
            launch = launch_of({"gpus": 8 * nodes, "nodes": nodes}, command)
            line = json.loads(launch.files[INPUT])["argv"][-1]
            assert ('--machine_rank "$NODE_RANK" --main_process_ip "$MASTER_ADDR"' in line) == told
            assert line.count("--main_process_port") == told
            assert line.count("--num_processes") == (1 if told else command.count("--num_processes"))
            assert ("--num_processes 16" in line) == told


def test_commands_that_would_not_be_one_run_are_refused() -> None:
    two = {"gpus": 16, "nodes": 2}
    knobs = {"a": [1, 2]}
    assert "{processes} counts them all" in faults_of(two, command="torchrun --nproc-per-node={processes} train.py", knobs=knobs)[0]
    assert "would train on its own" in faults_of(two, command="torchrun --standalone train.py", knobs=knobs)[0]
    assert "cannot be shared equally" in faults_of({"gpus": 9, "nodes": 2})[0]


def run_on_two(folder: Path, config: dict[str, Any], **more: Any) -> tuple[Measurement, list[int]]:
    """One run of two trial programs, each in a folder of its own; gives what the first measured, and both exit codes."""
    trial = {
        "argv": [sys.executable, "{folder}/train.py"],
        "ranks": 4,
        "nodes": 2,
        "local": 2,
        "first_only": False,
        "env": {},
        "cwd": "",
        "config": config,
        "plan": {"warm_up": 2, "least": 4, "most": 8, "settled": 1e-9, "enough_s": 1000.0},
        "loss_steps": 6,
        "hang_s": 20.0,
        "max_loss_gap": 0.02,
        "max_first_gap": 0.05,
        "depths": [],
        "layers": 0,
        **more,
    }
    port = str(free_port())
    programs = []
    for rank in range(2):
        there = folder / str(rank)
        there.mkdir()
        (there / "train.py").write_text(SCRIPT)
        (there / INPUT).write_text(json.dumps(trial))
        place = {"NNODES": "2", "NODE_RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        source = str(Path(autoscout.__file__).parents[1])
        environment = {**os.environ, "PYTHONPATH": source, "AUTOSCOUT_CACHE": str(folder / "cache"), **place}
        command = [sys.executable, "-m", "autoscout.training.trial", INPUT]
        pipe = subprocess.PIPE
        programs.append(subprocess.Popen(command, cwd=there, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True))
    said = [program.communicate(timeout=120) for program in programs]
    outputs = {name: (folder / "0" / name).read_text() for name in (RESULT, STAGE) if (folder / "0" / name).exists()}
    completed = Completed(returncode=programs[0].returncode, stdout=said[0][0], stderr=said[0][1], outputs=outputs)
    return outcome(completed, "tokens_per_s"), [program.returncode for program in programs]


def test_the_first_machine_measures_what_all_do(tmp_path: Path) -> None:
    measurement, codes = run_on_two(tmp_path, {"step_s": 0.05})
    assert measurement.status is Status.OK, (measurement.reason, measurement.log_tail)
    assert codes == [0, 0]
    tokens = measurement.metrics["tokens_per_s"] * measurement.metrics["step_ms"] / 1000
    assert tokens == pytest.approx(4 * 10), "of four processes on two machines"
    assert not (tmp_path / "1" / RESULT).exists(), "only the first tells"


def test_each_process_has_a_rank_of_its_own(tmp_path: Path) -> None:
    script = "import os; print(*(os.environ[name] for name in ('RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'LOCAL_WORLD_SIZE', 'NNODES')))"
    run_on_two(tmp_path, {}, argv=[sys.executable, "-c", script])
    logs = [(tmp_path / str(node) / f"rank{number}.log").read_text().split() for node in range(2) for number in range(2)]
    assert [log[:2] for log in logs] == [["0", "0"], ["1", "1"], ["2", "0"], ["3", "1"]]
    assert all(log[2:] == ["4", "2", "2"] for log in logs)


@pytest.mark.parametrize("rank", [0, 2])
def test_a_process_that_fails_is_named_wherever_it_runs(tmp_path: Path, rank: int) -> None:
    measurement, codes = run_on_two(tmp_path, {"fault": "oom", "rank": rank, "step_s": 0.05})
    assert measurement.status is Status.OOM_RUN, (measurement.reason, measurement.log_tail)
    assert codes[1] == 0, "the other machine's program ends in peace: the first one tells"


def test_machines_that_did_not_meet_are_told_from_one_run(tmp_path: Path) -> None:
    """A launcher that ignores where to meet trains once on each."""
    argv = ["env", "WORLD_SIZE=1", "RANK=0", sys.executable, "{folder}/train.py"]
    measurement, _ = run_on_two(tmp_path, {"step_s": 0.05}, ranks=0, local=1, argv=argv)
    assert measurement.status is Status.WRONG_OUTPUT
    assert "the machines did not meet" in measurement.reason
