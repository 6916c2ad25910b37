"""The backend itself: task, space, launch, outcome, hand-over."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, ClassVar

from autoscout.backends.finetune.space import build_space
from autoscout.backends.finetune.workload import RANDOM, FinetuneWorkload, read_workload
from autoscout.core.config import Config
from autoscout.core.launch import Launch
from autoscout.core.names import Names
from autoscout.core.protocols import once_per_task
from autoscout.core.task import Task
from autoscout.space import Space
from autoscout.training.backend import SharedProcess, training_launch
from autoscout.training.export import REAL_STEPS, export_files, torchrun
from autoscout.training.protocol import WORK
from autoscout.training.workload import read_training_task, workload_of

WORKER = "autoscout.backends.finetune.worker"
OPTIMIZERS = {"fused": "adamw_torch_fused", "foreach": "adamw_torch", "loop": "adamw_torch"}


class FinetuneBackend(SharedProcess):
    """Fine-tuning of a Hugging Face model, of all its parameters or of LoRA adapters; a random model needs no download.

    Every configuration does the same work: one optimizer step over the same examples, each predicted token weighing the same.
    """

    requires: ClassVar[tuple[str, ...]] = ("torch", "transformers", "peft")
    extra: ClassVar = "finetune"
    soft: ClassVar = frozenset({"micro_batch", "batching", "defer_sync", "precision", "gradient_checkpointing", "attention", "optimizer"})

    @classmethod
    def example(cls) -> Mapping[str, object]:
        workload = {"model": "random-micro", "most_steps": 6, "loss_steps": 4, "global_batch": 4}
        return {"workload": workload, "hardware": {"device": "cpu", "gpus": 0}}

    def task(self, given: Mapping[str, object]) -> Task:
        return read_training_task("finetune", given, read_workload, self.requires, alone=True)

    def load(self, task: Task) -> str:
        workload = workload_of(FinetuneWorkload, task)
        kind = f"LoRA adapters of rank {workload.rank} on" if workload.method == "lora" else "all parameters of"
        return f"Steps of training {kind} {workload.model} over {workload.global_batch} examples, the same for every configuration."

    @once_per_task
    def space(self, task: Task) -> Space:
        return build_space(workload_of(FinetuneWorkload, task), task.hardware)

    def hints(self, task: Task) -> tuple[Config, ...]:
        """Packing, and half precision where the hardware has it."""
        space = self.space(task)
        half = {"precision": "bf16"} if "precision" in space.knobs and "bf16" in space.knobs["precision"] else {}
        candidates = [Config({"batching": "pack", **half}), Config({"batching": "sort"})]
        configs = [space.project({**space.default(), **values}, values) for values in candidates if space.feasible(values)]
        return tuple(config for config in configs if config != space.default())

    def render(self, config: Config, task: Task, seed: int) -> Launch:  # noqa: ARG002 - losses are compared, so the data stay the same
        workload = workload_of(FinetuneWorkload, task)
        work = {
            "model": workload.model,
            "random": RANDOM.get(workload.model, {}),
            "lora": lora_arguments(config, workload) if workload.method == "lora" else {},
            "examples": workload.examples,
            "length": workload.length,
            "device": task.hardware["device"],
            "seed": workload.seed,
            "global_batch": workload.global_batch,
            "steps": workload.plan.steps,
        }
        return training_launch(
            argv=(sys.executable, "-m", WORKER, f"{{folder}}/{WORK}"),
            ranks=int(task.hardware["processes"]),
            config=config,
            workload=workload,
            hardware=task.hardware,
            env=_environment(config),
            files={WORK: json.dumps(work, indent=1, sort_keys=True) + "\n"},
            name=Names(self.space(task).knobs).name(config),
        )

    def export(self, config: Config, task: Task) -> Mapping[str, str]:
        workload, processes = workload_of(FinetuneWorkload, task), int(task.hardware["processes"])
        files = {"training_arguments.json": _json(trainer_arguments(config, workload, processes))}
        if workload.method == "lora":
            files["lora.json"] = _json(lora_arguments(config, workload))
        command = f'{torchrun(task.hardware)} -m {WORKER} "$here/{WORK}" "${{STEPS:-{REAL_STEPS}}}" "${{RESULT:-$PWD/fine-tuned}}"'
        return export_files(
            command=command,
            config=config,
            hardware=task.hardware,
            launch=self.render(config, task, seed=0),
            env=_environment(config),
            notes=[
                "Fine-tunes for STEPS steps and saves to RESULT. training_arguments.json (and lora.json) are the same settings for a",
                "script of your own that uses the Trainer: TrainingArguments(**json.load(...)).",
            ],
            files=files,
        )


def _json(data: Mapping[str, Any]) -> str:
    return json.dumps(dict(data), indent=2, sort_keys=True) + "\n"


def _environment(config: Mapping[str, Any]) -> dict[str, str]:
    return {"OMP_NUM_THREADS": str(config["threads"])} if "threads" in config else {}


def trainer_arguments(config: Mapping[str, Any], workload: FinetuneWorkload, processes: int) -> dict[str, Any]:
    """Fields of `TrainingArguments`, and of TRL's `SFTConfig` where examples are packed."""
    micro = int(config["micro_batch"])
    arguments: dict[str, Any] = {
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": max(1, workload.global_batch // processes // micro),
        "gradient_checkpointing": bool(config["gradient_checkpointing"]),
        "bf16": str(config.get("precision", "")).startswith("bf16"),
        "optim": OPTIMIZERS[str(config["optimizer"])],
        "torch_compile": bool(config.get("torch_compile", False)),
    }
    if config.get("precision") == "tf32":
        arguments["tf32"] = True
    if config["batching"] == "sort":
        arguments["train_sampling_strategy"] = "group_by_length"
    if config["batching"] == "pack":
        arguments |= {"packing": True, "max_length": workload.length}
    return arguments


def lora_arguments(config: Mapping[str, Any], workload: FinetuneWorkload) -> dict[str, Any]:
    """Fields of peft's `LoraConfig`."""
    rank = int(config.get("lora_rank", workload.rank))
    targets = config.get("lora_targets", workload.targets)
    listed = targets if isinstance(targets, list) or targets == "all-linear" else str(targets).split(",")
    return {"r": rank, "lora_alpha": 2 * rank, "target_modules": listed, "task_type": "CAUSAL_LM"}
