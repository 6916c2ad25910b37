"""What a training engineer pastes: a command or a script becomes the first trial, as it is."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from megatron_checkout import make_checkout

from _blocks import ROOT, blocks
from _cli_program import run
from autoscout.core import plugins
from autoscout.core.errors import ConfigError
from autoscout.core.secrecy import HIDDEN
from autoscout.core.user import UserLaunch
from autoscout.training.launches import read_training_launch

SCRIPT = """\
#!/bin/bash
# Runs pretraining of a small model
export CUDA_DEVICE_MAX_CONNECTIONS=1
export NVTE_FUSED_ATTN=${NVTE_FUSED_ATTN:-1}
GPUS_PER_NODE=8
NUM_NODES=${NUM_NODES:-2}
SAVE=${1:-"checkpoints"}
TP=2; PP=2
mkdir -p "$(dirname "$SAVE")"
DISTRIBUTED_ARGS=(--nproc_per_node $GPUS_PER_NODE --nnodes $NUM_NODES --node_rank $NODE_RANK --master_addr $MASTER_ADDR --master_port 6000)
MODEL_ARGS=(
    --num-layers 32 --hidden-size 4096 --num-attention-heads 32
    --seq-length 4096  # tokens
    --max-position-embeddings 4096 --swiglu --disable-bias-linear
)
TRAINING_ARGS=(--micro-batch-size 1 --global-batch-size $((GPUS_PER_NODE * NUM_NODES * 8)) --train-iters 1000 --lr 1e-4 --bf16)
if [[ "$TP" != "1" ]]; then
    TRAINING_ARGS+=(--sequence-parallel)
fi
TRAINING_ARGS+=("--mock-data" "--tokenizer-type NullTokenizer" "--vocab-size 32000")
torchrun "${DISTRIBUTED_ARGS[@]}" pretrain_gpt.py ${MODEL_ARGS[@]} ${TRAINING_ARGS[@]} \\
    --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP --save "$SAVE" --load "$SAVE" --use-distributed-optimizer
"""


def launch_of(system: str, text: str) -> UserLaunch:
    return plugins.get("backend", system)().read_launch(text, "here")  # type: ignore[no-any-return]


def test_secrets_are_kept_nowhere() -> None:
    launch = launch_of("pytorch", "export A=1 HF_TOKEN=hunter2\nenv WANDB_API_KEY=hunter2 torchrun --nproc-per-node 2 train.py")
    assert "hunter2" not in repr(launch)
    assert launch.workload == {"command": "A=1 env torchrun --nproc-per-node 2 train.py"}
    assert any(sentence.startswith("HF_TOKEN and WANDB_API_KEY: their values are kept nowhere") for sentence in launch.left_out)


def first_trial(here: Path, *words: str) -> dict[str, Any]:
    answer = run(here, "tune", *words, "--dry-run", "--json")
    assert answer.returncode == 0, answer.stderr + answer.stdout
    return json.loads(answer.stdout)  # type: ignore[no-any-return]


def test_a_script_of_megatron_is_the_first_trial(tmp_path: Path) -> None:
    checkout = make_checkout(tmp_path / "Megatron-LM")
    (checkout / "train.sh").write_text(SCRIPT)
    data = first_trial(checkout, "megatron", "--from", "train.sh", "--hardware", "gpu=H100")
    config = data["launches"][0]["config"]
    layout = {
        "tp": 2,
        "pp": 2,
        "dp": 4,
        "micro_batch": 1,
        "sequence_parallel": True,
        "distributed_optimizer": True,
        "overlap_grad_reduce": False,
    }
    assert {name: config[name] for name in layout} == layout
    workload, hardware = data["campaign"]["workload"], data["campaign"]["hardware"]
    assert (hardware["gpus"], hardware["nodes"]) == (16, 2)
    assert (workload["checkout"], workload["global_batch"], workload["env"]) == (str(checkout), 128, {"NVTE_FUSED_ATTN": HIDDEN})
    read = launch_of("megatron", SCRIPT)
    assert any("--save" in sentence for sentence in read.left_out)


def test_a_deepspeed_command_brings_its_file(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(
        json.dumps({"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}, "gradient_accumulation_steps": 4})
    )
    (tmp_path / "run.sh").write_text(
        "export NCCL_DEBUG=INFO\ndeepspeed --num_gpus 4 --master_port 29501 train.py --data my.jsonl --deepspeed_config ds.json\n"
    )
    data = first_trial(tmp_path, "deepspeed", "--from", "bash run.sh", "--hardware", "gpu=A100-80")
    config, workload = data["launches"][0]["config"], data["campaign"]["workload"]
    assert (config["zero_stage"], config["micro_batch"], workload["global_batch"], data["campaign"]["hardware"]["gpus"]) == (2, 2, 32, 4)
    wanted = "NCCL_DEBUG=INFO deepspeed --num_gpus 4 --master_port {port} train.py --data my.jsonl --deepspeed_config {ds_config}"
    assert workload["command"] == wanted


def test_the_trainer_leaves_its_batch_to_the_file_of_deepspeed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "zero3.json").write_text(json.dumps({"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": "auto"}))
    command = "torchrun --nproc_per_node=8 sft.py --deepspeed zero3.json --per_device_train_batch_size 4 --gradient_accumulation_steps 2"
    data = first_trial(tmp_path, "deepspeed", "--from", command, "--hardware", "gpu=H100")
    assert (data["launches"][0]["config"]["micro_batch"], data["campaign"]["workload"]["global_batch"]) == (4, 64)


def test_a_script_of_ones_own_runs_as_it_is(tmp_path: Path) -> None:
    command = "OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 train.py --template '{x}' --lr 1e-4"
    read = launch_of("pytorch", command)
    assert read.hardware == {"processes": 2}
    backend = plugins.get("backend", "pytorch")()
    knobs = {"bucket_mb": [5, 25]}
    task = backend.task({"workload": {**read.workload, "knobs": knobs}, "hardware": {**read.hardware, "gpu": "H100", "cores": 4}})
    argv = json.loads(backend.render(backend.space(task).default(), task, seed=0).files["train_input.json"])["argv"]
    assert shlex.split(argv[-1].removeprefix("exec ")) == shlex.split(command)


def test_the_campaign_and_the_commands_are_shown_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of the campaign were wrapped at 80 columns, which is no YAML any more; of a launch only the program of the trial was seen."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.sh").write_text(
        'ARGS=(--data /data/some/very/long/folder/with/a/name --optimizer adamw)\ntorchrun train.py --mb 8 "${ARGS[@]}"\n'
    )
    flags = ("--from", "run.sh", "-w", "knobs={mb: [1, 2]}", "--hardware", "device=cpu")
    answer = run(tmp_path, "tune", *flags, "--dry-run")
    assert answer.returncode == 0, answer.stderr
    shown = answer.stderr[answer.stderr.index("system: pytorch") :]
    campaign = yaml.safe_load(shown)
    assert campaign["workload"]["command"] == "torchrun train.py --mb 8 --data /data/some/very/long/folder/with/a/name --optimizer adamw"
    assert "torchrun train.py --mb 8 --data /data/some/very/long/folder/with/a/name --optimizer adamw\n" in answer.stdout
    assert "torchrun train.py --mb 2 --data" in answer.stdout
    assert "torchrun train.py --mb 8 --data" in run(tmp_path, "render", *flags).stdout


@pytest.mark.parametrize(
    ("system", "text", "words"),
    [
        ("pytorch", "vllm serve m", "no training command"),
        ("pytorch", "torchrun train.py --data $DATA", r"\$DATA, which the text does not set"),
        ("pytorch", "torchrun a.py\ntorchrun b.py", "2 training commands"),
        ("deepspeed", "torchrun train.py", "no file of DeepSpeed"),
        ("megatron", "torchrun train.py", "no training script of Megatron"),
        ("megatron", "if", "the script"),
    ],
)
def test_what_is_no_launch_is_refused_with_the_next_step(system: str, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        launch_of(system, text)


@pytest.mark.parametrize(
    ("command", "processes", "nodes"),
    [
        ("python -m torch.distributed.run --nproc-per-node 4 train.py", 4, 1),
        ("torchrun --standalone --nproc_per_node=8 -m my.train --lr 1", 8, 1),
        ("torchrun --nproc-per-node auto train.py", "all", 1),
        ("accelerate launch --num_processes 16 train.py", 16, 1),
        ("accelerate launch --cpu --same_network --num_processes 2 train.py", 2, 1),
        ("accelerate launch --some_new_switch train.py", 0, 1),
        ("srun -N 2 --ntasks-per-node=4 --gpus-per-node=4 python train.py", 8, 2),
        ("srun -N2 -n8 python train.py", 8, 2),
        ("mpirun -np 8 python train.py", 8, 1),
        ("python train.py", 0, 1),
        ("deepspeed --include localhost:0,1 train.py --deepspeed_config x.json", 2, 1),
        ("deepspeed --num_gpus 2 train.py --deepspeed_config x.json", 2, 1),
        ("deepspeed --hostfile hosts train.py", 8, 2),
        ("deepspeed --hostfile hosts --include worker-0@worker-1:0,2 train.py", 6, 2),
        ("deepspeed --hostfile hosts --exclude worker-1 train.py", 4, 1),
        ("deepspeed --hostfile hosts --num_gpus 2 train.py", 4, 2),
        ("accelerate launch --config_file accelerate.yaml train.py", 16, 2),
    ],
)
def test_launchers_say_how_many_processes_there_are(
    command: str, processes: int | str, nodes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts").write_text("worker-0 slots=4\nworker-1 slots=4\n")
    (tmp_path / "accelerate.yaml").write_text("compute_environment: LOCAL_MACHINE\nnum_machines: 2\nnum_processes: 16\nuse_cpu: false\n")
    start = read_training_launch(command, "here")
    assert (start.machine.processes, start.machine.nodes) == (processes, nodes)
    assert start.line() == command
    assert not start.left_out


@pytest.mark.parametrize(
    ("text", "processes", "nodes"),
    [
        ("torchrun --nnodes 2 --node_rank 0 --master_addr 10.0.0.1 --master-port=29500 --nproc-per-node 8 train.py --lr 1", 16, 2),
        ("torchrun --nnodes=1:2 --rdzv-backend c10d --rdzv_endpoint=$HEAD:29400 --nproc-per-node 8 train.py --lr 1", 16, 2),
        ("srun -N 2 torchrun --nnodes $SLURM_NNODES --nproc-per-node 8 --rdzv_endpoint $HEAD train.py --lr 1", 16, 2),
        ("#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\nsrun torchrun --nnodes $N --nproc-per-node 8 train.py --lr 1", 16, 2),
    ],
)
def test_where_machines_meet_is_told_by_every_trial(text: str, processes: int, nodes: int) -> None:
    """Kept as written, every machine would be number 0, or wait for a machine of another day."""
    start = read_training_launch(text, "here")
    assert (start.machine.processes, start.machine.nodes) == (processes, nodes)
    assert start.line() == "torchrun --nproc-per-node 8 train.py --lr 1"
    assert start.left_out


def test_a_command_is_started_in_the_folder_that_it_goes_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`cd project && torchrun train.py` was started where AutoScout is."""
    monkeypatch.chdir(tmp_path)
    inner = tmp_path / "project" / "jobs"
    inner.mkdir(parents=True)
    (inner / "ds.json").write_text(json.dumps({"train_batch_size": 8}))
    (inner / "hosts").write_text("one slots=2\n")
    read = launch_of("pytorch", "cd project && cd jobs && OUT=$PWD/out torchrun train.py")
    assert read.workload == {"command": f"OUT={inner}/out torchrun train.py", "cwd": str(inner)}
    assert "cwd" not in launch_of("pytorch", "(cd project; python prepare.sh) && torchrun train.py").workload
    read = launch_of("deepspeed", "cd project/jobs\ndeepspeed --hostfile hosts train.py --deepspeed_config ds.json")
    assert (read.workload["ds_config"], read.workload["cwd"], read.hardware) == (str(inner / "ds.json"), str(inner), {"processes": 2})


def test_gpus_that_a_variable_names_are_counted_and_not_kept() -> None:
    """Kept, each of several trials at once would use these, whatever GPUs it was given."""
    start = read_training_launch("CUDA_VISIBLE_DEVICES=4,5 python train.py", "here")
    assert (start.line(), start.hardware) == ("python train.py", {"gpus": 2})
    assert "GPUs of its own" in start.left_out[0]
    assert read_training_launch("CUDA_VISIBLE_DEVICES= python train.py", "here").hardware == {"device": "cpu"}


def test_processes_are_gpus_only_where_there_are_any() -> None:
    """A launch on two processes ended on a machine without GPUs: it asked for two."""
    backend = plugins.get("backend", "pytorch")()

    def hardware(command: str, **facts: object) -> dict[str, object]:
        read = backend.read_launch(command, "here")
        given = {"workload": {**read.workload, "knobs": {"mb": [1, 2]}}, "hardware": {**read.hardware, **facts}}
        found = backend.task(given).hardware
        return {name: found[name] for name in ("device", "gpus", "processes")}

    two = "torchrun --nproc-per-node 2 train.py"
    assert hardware(two) == {"device": "cpu", "gpus": 0, "processes": 2}
    assert hardware(two, gpu="H100") == {"device": "cuda", "gpus": 2, "processes": 2}
    assert hardware("torchrun --nproc-per-node auto train.py") == {"device": "cpu", "gpus": 0, "processes": os.cpu_count()}
    assert hardware("torchrun --nproc-per-node auto train.py", gpus="8xH100") == {"device": "cuda", "gpus": 8, "processes": 8}
    with pytest.raises(ConfigError, match="each of the 4 GPUs has one process"):
        hardware(two, gpus=4)


def test_the_guides_show_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    checkout = make_checkout(tmp_path / "Megatron-LM")
    (checkout / "train.sh").write_text(SCRIPT)
    (block,) = [block for block in blocks(ROOT / "docs" / "guides" / "megatron.md") if "--from" in block.text]
    for line in block.text.splitlines():
        first_trial(checkout, *shlex.split(line.partition("#")[0])[2:])
