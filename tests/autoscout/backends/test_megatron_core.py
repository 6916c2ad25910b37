"""The megatron-core package itself: its classes agree with our rules, and its runs learn the same in every layout. Needs megatron-core."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from megatron_checkout import make_checkout

import autoscout
from autoscout.backends.megatron import MegatronBackend
from autoscout.backends.megatron.settings import core_file
from autoscout.backends.megatron.workload import MegatronWorkload
from autoscout.core.config import Config
from autoscout.core.task import Task
from autoscout.core.trial import Measurement, Status
from autoscout.execute.local import LocalExecutor, LocalOptions
from autoscout.space import Space

sys.path.insert(0, str(Path(__file__).parents[3]))

from benchmarks.megatron_parser import refusals

pytestmark = [pytest.mark.training, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

CPU = {"device": "cpu", "gpus": 0, "processes": 2, "cores": 2, "native_bf16": True, "memory_gb": 8.0}
SMALL = {"model": "micro", "most_steps": 6, "loss_steps": 5, "limit_s": 600.0}
DRAWN = 2500  # of each task below
PARSED = 200

NOT_OF_THE_CLASSES = (
    "not sequence_parallel or sequence % tp",
    "cp == 1 or sequence %",
    "transformer_engine or kv_heads % tp",
    "virtual_stages == 1 or (global_batch //",
    "virtual_stages == 1 or overlap_p2p_comm",
    "recompute_layers * pp",
    "experts > 0 or recompute_modules",
    "experts == 0 or dense_layers",
    "not biases or recompute_modules",
    "transformer_engine or recompute_modules",
    "gpu or precision",
    "precision != 'fp8'",
    "experts == 0 or tp == 1 or sequence_parallel",
)
"""Rules that megatron-core states later, while a model is built or run, and those of Megatron-LM's arguments."""


@pytest.fixture(autouse=True)
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOSCOUT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")  # tests share their cores, and spinning threads would wait for each other
    paths = [str(Path(autoscout.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return make_checkout(tmp_path / "Megatron-LM")


def task_of(hardware: dict[str, Any] = CPU, **workload: Any) -> Task:
    return MegatronBackend().task({"workload": workload, "hardware": hardware})


@cache
def groups_refused(processes: int, sizes: tuple[int, ...]) -> str:
    """Why megatron-core's process groups refuse a layout; empty when they do not, and replicas are as many as the layout says."""
    import torch
    from megatron.core import parallel_state

    dp, tp, pp, cp, ep, expert_tp, virtual = sizes
    if torch.distributed.is_initialized() and torch.distributed.get_world_size() != processes:
        torch.distributed.destroy_process_group()
    if not torch.distributed.is_initialized():
        from torch.testing._internal.distributed.fake_pg import FakeStore

        torch.distributed.init_process_group("fake", rank=0, world_size=processes, store=FakeStore())
    try:
        parallel_state.initialize_model_parallel(
            tp,
            pp,
            virtual if virtual > 1 else None,
            context_parallel_size=cp,
            expert_model_parallel_size=ep,
            expert_tensor_parallel_size=expert_tp,
            create_gloo_process_groups=False,
        )
        found = parallel_state.get_data_parallel_world_size()
        return "" if found == dp else f"{found} replicas, not {dp}"
    except (RuntimeError, AssertionError, ValueError, ZeroDivisionError) as error:
        return str(error) or type(error).__name__
    finally:
        parallel_state.destroy_model_parallel()


def refused(config: Config, task: Task) -> str:
    """Why megatron-core refuses a configuration: its classes, groups, batches, dealing out of layers and shares; empty when it does not."""
    from megatron.core.distributed import DistributedDataParallelConfig
    from megatron.core.num_microbatches_calculator import ConstantNumMicroBatchesCalculator
    from megatron.core.optimizer import OptimizerConfig
    from megatron.core.transformer.transformer_block import get_num_layers_to_build
    from megatron.core.utils import divide

    from autoscout.backends.megatron.model import transformer_config

    backend = MegatronBackend()
    workload = MegatronWorkload.model_construct(**dict(task.workload))
    file = json.loads(core_file(config, backend.table(task), workload))
    for name in ("attention_backend", "moe_permute_fusion"):  # need Transformer Engine itself
        file["TransformerConfig"].pop(name, None)
    shape, sizes = (
        workload.architecture,
        tuple(int(config.get(name, 1)) for name in ("dp", "tp", "pp", "cp", "ep", "expert_tp", "virtual_stages")),
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            core = transformer_config(file, shape.layers)
            DistributedDataParallelConfig(**file["DistributedDataParallelConfig"])
            import torch

            chosen = dict(file["OptimizerConfig"])
            OptimizerConfig(**{**chosen, "params_dtype": getattr(torch, chosen["params_dtype"])})
        if why := groups_refused(int(task.hardware["processes"]), sizes):
            return why
        ConstantNumMicroBatchesCalculator(workload.global_batch, file["micro_batch_size"], sizes[0], False, 0)
        for stage in range(sizes[2]):
            for virtual in range(sizes[6]):
                get_num_layers_to_build(core, vp_stage=virtual if sizes[6] > 1 else None, pp_rank=stage)
        divide(shape.ffn, sizes[1])
        divide(shape.expert_ffn, sizes[5])
        divide(shape.experts, sizes[4])
        if not workload.checkout:
            divide(shape.vocab, sizes[1])
    except (ValueError, AssertionError, RuntimeError, TypeError) as error:
        return str(error) or type(error).__name__
    return ""


TASKS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "dense, with Transformer Engine": (
        {"gpus": "8xA100-80", "cores": 8},
        {"model": "llama-3.2-3b", "global_batch": 96, "checkout": "here"},
    ),
    "experts, with Transformer Engine": (
        {"gpus": "16xA100-80", "cores": 8},
        {"model": "qwen3-30b-a3b", "global_batch": 64, "checkout": "here"},
    ),
    "GPT, built-in runner": ({"gpus": "12xA100-80", "cores": 8}, {"model": "gpt-1b", "global_batch": 96}),
    "experts on CPUs": ({**CPU, "processes": 4}, {"model": "micro-moe", "global_batch": 16}),
}


@pytest.mark.parametrize("name", TASKS)
def test_rules_agree_with_megatron_core(name: str, checkout: Path) -> None:
    """10,000 configurations in all, drawn without any rule: what megatron-core refuses our rules refuse, and the other way round."""
    hardware, workload = TASKS[name]
    task = task_of(hardware, **{**workload, **({"checkout": str(checkout)} if "checkout" in workload else {})})
    space = MegatronBackend().space(task)
    free = Space(list(space.knobs.values()), facts=dict(space.facts))
    rng = np.random.default_rng(0)
    legal = 0
    for number in range(DRAWN):
        # Half of them keep the product of the layout, so that the other rules come to bear.
        config = (space if number % 2 else free).sample(rng)
        if number % 2:
            config = _changed(config, free, rng)
        broken, why = space.check(config), refused(config, task)
        if not broken:
            assert not why, f"megatron-core refuses what our rules allow: {why}\n{config}"
            legal += 1
        elif not why:
            ours = [rule for rule in broken if not any(text in rule for text in NOT_OF_THE_CLASSES)]
            assert not ours, f"our rules refuse what megatron-core takes: {ours}\n{config}"
    assert legal > DRAWN // 20, "enough that both accept"


def _changed(config: Config, free: Space, rng: np.random.Generator) -> Config:
    """A valid configuration with one knob changed at random, and what then becomes active filled in; half the time unchanged."""
    if rng.random() < 0.5:
        return config
    name = list(config)[int(rng.integers(len(config)))]
    values = free.knobs[name].values
    wanted = Config({name: values[int(rng.integers(len(values)))]})
    return free.project({**config, **wanted}, wanted)


def measure(given: dict[str, Any], folder: Path, wanted: dict[str, Any]) -> Measurement:
    backend = MegatronBackend()
    task = backend.task(given)
    space = backend.space(task)
    config = space.project({**space.default(), **wanted}, Config(wanted))
    assert all(config[name] == value for name, value in wanted.items()), config
    launch = backend.render(config, task, seed=1)
    with LocalExecutor(LocalOptions(folder=folder)) as executor:
        done = executor.submit(replace(launch, resources=replace(launch.resources, cpus=1))).result(1200.0)
    return backend.parse(done, task)


LAYOUTS: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "dense": (
        SMALL,
        [
            {"dp": 2},
            {"dp": 2, "distributed_optimizer": True, "overlap_grad_reduce": True, "overlap_param_gather": True, "bucket_mb": 1},
            {"tp": 2, "sequence_parallel": True, "recompute": "full", "recompute_method": "block", "recompute_layers": 2},
            {"pp": 2, "virtual_stages": 2, "micro_batch": 2},
            {"pp": 2, "attention": "sdpa", "recompute": "selective"},
            {"dp": 2, "overlap_grad_reduce": True, "bucket_count": 4, "micro_batch": 4},
        ],
    ),
    "experts": (
        {**SMALL, "model": "micro-moe", "global_batch": 8},
        [
            {"dp": 2},
            {"dp": 2, "ep": 2, "distributed_optimizer": True},
            {"tp": 2, "sequence_parallel": True, "expert_tp": 2},
            {"pp": 2, "recompute": "selective", "recompute_modules": "core_attn+moe"},
        ],
    ),
}


@pytest.mark.parametrize("kind", LAYOUTS)
def test_all_layouts_of_megatron_core_learn_the_same(kind: str, tmp_path: Path) -> None:
    workload, layouts = LAYOUTS[kind]
    found = [measure({"workload": workload, "hardware": CPU}, tmp_path, wanted) for wanted in layouts]
    assert [one.status for one in found] == [Status.OK] * len(found), [one.reason for one in found]
    losses = [one.metrics["loss_after"] for one in found]
    near = 1e-3 if kind == "experts" else 1e-4  # a token between two experts goes by rounding
    assert losses == pytest.approx([losses[0]] * len(losses), rel=near)


def test_half_precision_learns_the_same_too(tmp_path: Path) -> None:
    given = {"workload": SMALL, "hardware": {**CPU, "processes": 1}}
    plain, half = (measure(given, tmp_path, {"precision": precision}) for precision in ("fp32", "bf16"))
    assert half.status is Status.OK, half.reason
    assert half.metrics["loss_after"] == pytest.approx(plain.metrics["loss_after"], rel=1e-3)


def test_two_depths_are_extrapolated(tmp_path: Path) -> None:
    given = {"workload": {**SMALL, "layers": 8, "depths": [1, 2]}, "hardware": {**CPU, "processes": 1}}
    found = measure(given, tmp_path, {})
    assert found.status is Status.OK, found.reason
    assert "loss_after" not in found.metrics


def test_a_study_of_megatron_core_hands_over_what_runs(tmp_path: Path) -> None:
    campaign = {
        "system": "megatron",
        "name": "layouts",
        "workload": SMALL,
        "hardware": CPU,
        "set": {"recompute": "none", "micro_batch": 2, "precision": "fp32"},
        "search": {"searcher": "random"},
        "budget": {"trials": 4},
        "finals": {"rounds": 1, "finalists": 1, "simplify": False},
        "measure": {"dirty_repeats": 0},
    }
    outcome = autoscout.tune(campaign, output_dir=tmp_path)
    assert outcome.summary.answer is not None
    statuses = {trial.measurement.status for trial in outcome.trials}
    assert statuses <= {Status.OK, Status.BOUNDED}, [trial.measurement.reason for trial in outcome.trials]
    best = tmp_path / "layouts" / "best"
    assert json.loads((best / "megatron.json").read_text())["global_batch_size"] == 8
    done = subprocess.run(["env", "STEPS=3", "sh", str(best / "run.sh")], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "step 0: loss 5." in done.stdout


def test_a_killed_rank_is_out_of_memory_and_nothing_is_left(tmp_path: Path) -> None:
    """The second rank is killed as the kernel would, once it trains."""
    backend = MegatronBackend()
    task = backend.task({"workload": {**SMALL, "most_steps": 1000, "least_steps": 900, "settled": 1e-9}, "hardware": CPU})
    launch = backend.render(backend.space(task).default(), task, seed=1)
    given = json.loads(launch.files["train_input.json"])
    killer = (
        "import os, signal, sys, threading\n"
        "from autoscout import training\n"
        "told = training.step\n"
        "def step(**more):\n"
        "    told(**more)\n"
        "    if os.environ['RANK'] == '1': os.kill(os.getpid(), signal.SIGKILL)\n"
        "training.step = step\n"
        "from autoscout.backends.megatron.worker import main\n"
        "sys.exit(main(*sys.argv[1:]))\n"
    )
    given["argv"] = [sys.executable, "-c", killer, *given["argv"][3:]]
    changed = replace(launch, files={**launch.files, "train_input.json": json.dumps(given)}, resources=replace(launch.resources, cpus=1))
    with LocalExecutor(LocalOptions(folder=tmp_path)) as executor:
        found = backend.parse(executor.submit(changed).result(600.0), task)
    assert found.status is Status.OOM_RUN, found.reason
    assert "killed for memory while training" in found.reason
    assert not list(_workers(tmp_path))


def _workers(folder: Path) -> Iterator[str]:
    """Command lines of processes that still run in a folder."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_text()
        except OSError:
            continue
        if str(folder) in words:
            yield words


MEGATRON_LM = os.environ.get("AUTOSCOUT_MEGATRON_LM", "")


@pytest.mark.skipif(not MEGATRON_LM, reason="AUTOSCOUT_MEGATRON_LM names no checkout of Megatron-LM")
def test_the_arguments_of_megatron_lm_take_our_launches() -> None:
    """Eight models, random launches: `benchmarks.megatron_parser` does the same with more of them and several versions."""
    said = refusals(MEGATRON_LM, PARSED, seed=1)
    assert sum(map(len, said.values())) == PARSED
    assert not [answer for answers in said.values() for answer in answers if answer]
