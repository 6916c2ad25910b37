"""Where a study of Megatron begins: the user's own flags, or a layout that holds the model and is never without the usual switches."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from megatron_checkout import make_checkout

from _blocks import ROOT, blocks
from _cli_program import run
from autoscout.backends.megatron import MegatronBackend
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.task import Task
from autoscout.simulators.training import TrainingModel
from autoscout.study.start import find_simulator
from autoscout.training.hardware import detect

BACKEND = MegatronBackend()
WHOLE = (
    "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention --num-query-groups 8 "
    "--swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights --position-embedding-type rope "
    "--seq-length 8192 --max-position-embeddings 8192 --micro-batch-size 1 --global-batch-size 128 --train-iters 500000 --lr 0.00015 "
    "--lr-decay-iters 490000 --lr-warmup-iters 2000 --bf16 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 "
    "--num-layers-per-virtual-pipeline-stage 4 --sequence-parallel --use-distributed-optimizer --recompute-activations "
    "--tokenizer-type NullTokenizer --vocab-size 128256 --mock-data --split 99,1,0 --save /ckpt --save-interval 1000 --load /ckpt "
    "--eval-interval 100 --eval-iters 32 --tensorboard-dir /tb --no-bias-swiglu-fusion"
)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_checkout(tmp_path_factory.mktemp("checkout") / "Megatron-LM"))


def task_of(checkout: str, gpus: str, **workload: Any) -> Task:
    return BACKEND.task({"workload": {"checkout": checkout, **workload}, "hardware": {"gpus": gpus, "cores": 16}})


def words_of(task: Task, **changes: Any) -> list[str]:
    space = BACKEND.space(task)
    config = space.project({**space.default(), **changes}, Config(changes)) if changes else space.default()
    assert all(config[name] == value for name, value in changes.items()), config
    words: list[str] = json.loads(BACKEND.render(config, task, seed=1).files["run.json"])["argv"]
    return words[words.index("pretrain_gpt.py") + 1 :]


def flags_of(words: list[str]) -> dict[str, list[str]]:
    flags: dict[str, list[str]] = {}
    for word in words:
        if word.startswith("--"):
            assert word not in flags, f"{word} stands twice"
            flags[word] = []
        else:
            flags[list(flags)[-1]].append(word)
    return flags


def test_flags_of_knobs_are_where_the_knobs_begin(checkout: str) -> None:
    arguments = "--micro-batch-size 2 --use-distributed-optimizer --data-path my_text --tokenizer-type GPT2BPETokenizer --seed 7"
    task = task_of(checkout, "8xH100", model="llama-3.2-3b", global_batch=64, arguments=arguments)
    default = BACKEND.space(task).default()
    assert (default["micro_batch"], default["distributed_optimizer"]) == (2, True)
    flags = flags_of(words_of(task, micro_batch=4))
    assert (flags["--micro-batch-size"], flags["--data-path"], flags["--seed"]) == (["4"], ["my_text"], ["7"])
    assert "--mock-data" not in flags


def test_a_whole_launch_is_the_first_trial_as_it_is(checkout: str) -> None:
    task = task_of(checkout, "16xH100", arguments=WHOLE)
    shape = BACKEND.space(task).facts
    assert (shape["layers"], shape["kv_heads"], shape["ffn"], task.workload["global_batch"], task.workload["sequence"]) == (
        32,
        8,
        14336,
        128,
        8192,
    )
    own, trial = flags_of(WHOLE.split()), flags_of(words_of(task))
    expected = {
        **own,
        "--num-virtual-stages-per-pipeline-rank": ["4"],
        "--recompute-granularity": ["selective"],
        "--recompute-modules": ["core_attn"],
    }
    for spelt_otherwise in ("--num-layers-per-virtual-pipeline-stage", "--recompute-activations"):
        del expected[spelt_otherwise]
    of_the_run = ("--save", "--save-interval", "--load", "--eval-interval", "--eval-iters", "--tensorboard-dir")
    expected = {flag: values for flag, values in expected.items() if flag not in of_the_run}
    measuring = {
        "--exit-interval",
        "--log-interval",
        "--log-throughput",
        "--eval-iters",
        "--expert-tensor-parallel-size",
        "--context-parallel-size",
    }
    assert {flag: values for flag, values in trial.items() if flag not in measuring} == expected
    assert "--overlap-grad-reduce" not in trial, "Megatron-LM's own default, not a recipe's"
    exported = BACKEND.export(BACKEND.space(task).default(), task)["run.sh"]
    assert all(f"{flag} " in exported for flag in ("--save", "--load", "--train-iters"))
    assert "--exit-interval" not in exported


def test_the_command_of_the_guide_begins_with_ones_own_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = blocks(ROOT / "docs" / "guides" / "megatron.md")
    (block,) = [block for block in page if "my-arguments.txt" in block.text]
    monkeypatch.setenv("HOME", str(tmp_path))
    make_checkout(tmp_path / "Megatron-LM")
    words = shlex.split(block.text.replace("$(cat my-arguments.txt)", WHOLE))
    answer = run(tmp_path, *words[1:], "--dry-run", "--json")
    assert answer.returncode == 0, answer.stderr
    config = json.loads(answer.stdout)["launches"][0]["config"]
    assert (config["tp"], config["pp"], config["virtual_stages"], config["overlap_grad_reduce"]) == (2, 2, 4, False)


def test_a_dry_run_shows_no_hint_that_the_study_leaves_out(tmp_path: Path, checkout: str) -> None:
    """tp=2 and pp=2 of a model that needs sixteen GPUs were shown as what is tried first."""
    words = ("--model", "llama-3.1-70b", "--hardware", "gpus=64xH100", "-w", f"checkout={checkout}", "--dry-run", "--json")
    answer = run(tmp_path, "tune", "megatron", *words)
    assert answer.returncode == 0, answer.stderr
    assert [one["by"] for one in json.loads(answer.stdout)["launches"][:2]] == ["default", "hybrid"]


def test_experts_and_what_is_left_out_are_read_as_megatron_reads_them(checkout: str) -> None:
    arguments = (
        "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --micro-batch-size 2 --swiglu --num-experts 8 "
        "--expert-model-parallel-size 4 --fp16"
    )
    task = task_of(checkout, "8xA100-80", arguments=arguments)
    default, facts = BACKEND.space(task).default(), BACKEND.space(task).facts
    assert (default["ep"], default["dp"], default["precision"], default["micro_batch"]) == (4, 8, "fp16", 2)
    assert (facts["experts"], facts["expert_ffn"], facts["kv_heads"]) == (8, 2688, 16)
    assert task.workload["global_batch"] == 16, "a micro-batch of each replica, as Megatron-LM takes it"


@pytest.mark.parametrize(
    ("gpus", "arguments", "words"),
    [
        ("8xH100", WHOLE.replace("parallel-size 2", "parallel-size 3", 1), "cannot be the first trial"),
        ("1xH100", WHOLE, "a multiple of 4 GPUs"),
        ("8xH100", WHOLE + " --rampup-batch-size 32 32 1000", "same work"),
        ("8xH100", WHOLE.replace("--num-layers 32", ""), "part of a model"),
        ("8xH100", "my_text --bf16", "must begin with a flag"),
        ("8xH100", "--micro-batch-size 1 2", "takes one value"),
    ],
)
def test_flags_that_cannot_be_the_first_trial_are_refused(checkout: str, gpus: str, arguments: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        task_of(checkout, gpus, arguments=arguments)


def test_a_model_is_named_once(checkout: str) -> None:
    with pytest.raises(ConfigError, match="another one"):
        task_of(checkout, "16xH100", model="llama-3.1-8b", arguments=WHOLE)


@pytest.mark.parametrize(
    ("model", "gpus", "batch"),
    [
        ("gpt-350m", "1xH100", 32),
        ("gpt-1b", "8xA100-80", 256),
        ("llama-3.2-3b", "8xA100-80", 128),
        ("llama-3.1-8b", "8xA40", 64),
        ("llama-3.1-8b", "16xH100", 128),
        ("llama-3.1-70b", "64xH100", 256),
        ("qwen3-30b-a3b", "16xH100", 256),
        ("mixtral-8x7b", "64xH100", 256),
        ("llama-3.1-405b", "512xH100", 512),
    ],
)
def test_the_layout_to_begin_with_is_predicted_to_fit_and_no_easy_prey(checkout: str, model: str, gpus: str, batch: int) -> None:
    """A gain over a layout that nobody runs is easy: no other layout may be predicted to be twice as fast."""
    task = task_of(checkout, gpus, model=model, global_batch=batch)
    space = BACKEND.space(task)
    default = space.default()
    usual = {"distributed_optimizer": True, "overlap_grad_reduce": True, "sequence_parallel": True, "expert_tp": 1, "precision": "bf16"}
    assert all(default[name] == value for name, value in usual.items() if name in default)
    layouts = [{"tp": tp, "pp": pp, "recompute": again} for tp in (1, 2, 4, 8) for pp in (1, 2, 4, 8, 16) for again in ("none", "full")]
    others = [space.project({**default, **layout}, Config(known)) for layout in layouts if (known := _known(space, layout)) is not None]
    answer = TrainingModel().predict([default, *others], task)
    assert answer.feasible[0] >= 0.5, default
    fitting = [value for value, chance in zip(answer.value, answer.feasible, strict=True) if chance >= 0.5]
    assert answer.value[0] >= max(fitting) / 2, default


def _known(space: Any, layout: dict[str, Any]) -> dict[str, Any] | None:
    known = {name: value for name, value in layout.items() if name in space.knobs and value in space.knobs[name]}
    return known if len(known) == len(layout) and space.feasible(Config(known)) else None


def test_many_gpus_are_several_nodes() -> None:
    assert detect({"gpus": "16xH100"})["nodes"] == 2
    assert "nodes" not in detect({"gpus": "8xH100"})
    assert detect({"gpus": "12xH100"})["nodes"] == 2, "no usual machine has twelve; it is said"
    assert detect({"gpus": "16xH100", "nodes": 4})["nodes"] == 4


def test_no_flag_of_any_configuration_stands_twice(checkout: str) -> None:
    task = task_of(checkout, "16xH100", arguments=WHOLE + " --tp-comm-overlap-cfg mine.yaml --attention-backend fused")
    space = BACKEND.space(task)
    assert "tp_comm_sms" not in space.knobs, "the user's own file says it"
    rng = np.random.default_rng(3)
    for config in filter(None, (space.sample(rng) for _ in range(40))):
        words: list[str] = json.loads(BACKEND.render(config, task, seed=1).files["run.json"])["argv"]
        counts = Counter(word for word in words[words.index("pretrain_gpt.py") :] if word.startswith("--"))
        assert max(counts.values()) == 1, counts.most_common(2)


def test_variables_of_the_user_reach_the_script(checkout: str, tmp_path: Path) -> None:
    task = task_of(checkout, "8xH100", model="llama-3.2-3b", global_batch=64, env={"NVTE_FUSED_ATTN": "1"})
    trial = json.loads(BACKEND.render(BACKEND.space(task).default(), task, seed=1).files["train_input.json"])
    assert trial["env"]["NVTE_FUSED_ATTN"] == "1"


MIXED = "8xA100-80+4xA40"


def test_gpus_of_several_kinds_get_layers_by_their_speed(checkout: str) -> None:
    """The paper's cluster: eight A100 and four A40, stages of one kind each, and fewer layers for the slower kind."""
    task = task_of(checkout, MIXED, model="llama-3.2-3b", global_batch=96)
    assert (task.hardware["gpus"], task.hardware["nodes"], task.hardware["memory_gb"]) == (12, 3, 48.0)
    flags = flags_of(words_of(task))
    assert (flags["--pipeline-model-parallel-size"], flags["--pipeline-model-parallel-layout"]) == (["3"], ["Et*12|t*11|t*5L"])
    even = flags_of(words_of(task, a40_share=1.0, pp=4))
    assert "--pipeline-model-parallel-layout" not in even
    assert find_simulator(BACKEND.space(task), task) == "training"


def test_every_layout_of_stages_holds_the_model_and_one_kind_a_stage(checkout: str) -> None:
    task = task_of(checkout, MIXED, model="llama-3.2-3b", global_batch=64)
    space, rng, listed = BACKEND.space(task), np.random.default_rng(1), 0
    for config in filter(None, (space.sample(rng) for _ in range(80))):
        flags = flags_of(words_of(task, **config))
        assert 8 % (config["tp"] * config.get("cp", 1)) == 0
        if layout := flags.get("--pipeline-model-parallel-layout"):
            stages = layout[0].removeprefix("E").removesuffix("L").split("|")
            held = [int(stage.partition("*")[2] or 1) for stage in stages]
            assert (len(held), sum(held)) == (config["pp"], 28)
            assert 8 % (config["tp"] * config.get("cp", 1) * config["dp"]) == 0
            assert "--num-virtual-stages-per-pipeline-rank" not in flags
            listed += 1
    assert listed > 10


def test_stages_that_the_user_lists_stay_as_they_are(checkout: str) -> None:
    arguments = WHOLE.replace("--num-layers-per-virtual-pipeline-stage 4 ", "--pipeline-model-parallel-layout Et*17|t*15L ")
    task = task_of(checkout, "16xH100", arguments=arguments)
    assert flags_of(words_of(task))["--pipeline-model-parallel-layout"] == ["Et*17|t*15L"]
    assert {config["pp"] for config in filter(None, (BACKEND.space(task).sample(np.random.default_rng(seed)) for seed in range(20)))} == {2}
