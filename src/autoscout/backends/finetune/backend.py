"""The backend itself: task, space, launch, outcome, hand-over."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar

from autoscout.backends._shared.training.export import REAL_STEPS, export_files, torchrun
from autoscout.backends._shared.training.launch import WORK, training_launch
from autoscout.backends._shared.training.machine import Hardware, detect, one_machine
from autoscout.backends._shared.training.outcome import outcome
from autoscout.backends._shared.training.workload import loss_key, read_goal
from autoscout.backends.finetune.settings import lora_arguments, trainer_arguments
from autoscout.backends.finetune.space import build_space
from autoscout.backends.finetune.workload import RANDOM, Workload, read_workload
from autoscout.common.fields import read_blocks, read_fields, refuse_if
from autoscout.common.templates import canonical
from autoscout.core.config import Config
from autoscout.core.launch import Completed, Launch
from autoscout.core.names import Names
from autoscout.core.task import Task
from autoscout.core.trial import Measurement
from autoscout.space import Space

WORKER = "autoscout.backends.finetune.worker"


class FinetuneBackend:
    """Fine-tuning of a Hugging Face model, of all its parameters or of LoRA adapters; a random model needs no download.

    Every configuration does the same work: one optimizer step over the same examples, each predicted token weighing the same.
    """

    requires: ClassVar = ("torch", "transformers", "peft")
    extra: ClassVar = "finetune"

    def __init__(self) -> None:
        self._spaces: dict[str, Space] = {}  # by the facts they depend on: building one takes longer than rendering a launch

    @classmethod
    def example(cls) -> Mapping[str, object]:
        workload = {"model": "random-micro", "most_steps": 6, "loss_steps": 4, "global_batch": 4}
        return {"workload": workload, "hardware": {"device": "cpu", "gpus": 0}}

    def task(self, given: Mapping[str, object]) -> Task:
        blocks = read_blocks(given)
        hardware = detect(blocks.hardware)
        if hardware["device"] == "cpu" and "processes" not in blocks.hardware:
            hardware["processes"] = 1  # what people fine-tune with on a CPU
        faults = [*blocks.faults, *read_fields(Hardware, hardware, "hardware")[1]]
        refuse_if(faults if any(fault.where == "hardware" for fault in faults) else [])
        workload, wrong = read_workload(blocks.workload, hardware)
        objective, more = read_goal(blocks.objective, workload.max_loss_gap)
        refuse_if([*faults, *one_machine(hardware, ""), *wrong, *more])
        return Task(
            system="finetune",
            workload=workload.model_dump(),
            hardware=hardware,
            software={**{name: _version(name) for name in ("torch", "transformers", "peft")}, **blocks.software},
            objective=objective,
            budget=blocks.budget,
        )

    def load(self, task: Task) -> str:
        workload = _workload(task)
        kind = f"LoRA adapters of rank {workload.rank} on" if workload.method == "lora" else "all parameters of"
        return f"Steps of training {kind} {workload.model} over {workload.global_batch} examples, the same for every configuration."

    def space(self, task: Task) -> Space:
        facts = canonical([dict(task.workload), dict(task.hardware)])
        if facts not in self._spaces:
            self._spaces[facts] = build_space(_workload(task), task.hardware)
        return self._spaces[facts]

    def hints(self, task: Task) -> tuple[Config, ...]:
        """Packing, and half precision where the hardware has it."""
        space = self.space(task)
        half = {"precision": "bf16"} if "precision" in space.knobs and "bf16" in space.knobs["precision"] else {}
        wanted = [Config({"batching": "pack", **half}), Config({"batching": "sort"})]
        found = [space.project({**space.default(), **values}, values) for values in wanted if space.feasible(values)]
        return tuple(config for config in found if config != space.default())

    def render(self, config: Config, task: Task, seed: int) -> Launch:  # noqa: ARG002 - losses are compared, so the data stay the same
        workload, default = _workload(task), self.space(task).default()
        kept = ("model", "method", "examples", "length", "global_batch", "rank", "targets", "seed")
        key = loss_key({name: task.workload[name] for name in kept}, dict(task.hardware), dict(task.software), dict(default))
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
            reference={"key": key, "own": config == default},
            env=_environment(config),
            files={WORK: json.dumps(work, indent=1, sort_keys=True) + "\n"},
            name=Names(self.space(task).knobs).name(config),
        )

    def parse(self, completed: Completed, task: Task) -> Measurement:
        return outcome(completed, task.objective.metric)

    def export(self, config: Config, task: Task) -> Mapping[str, str]:
        workload, processes = _workload(task), int(task.hardware["processes"])
        files = {"training_arguments.json": _json(trainer_arguments(config, workload, processes))}
        if workload.method == "lora":
            files["lora.json"] = _json(lora_arguments(config, workload))
        command = f'{torchrun(processes)} -m {WORKER} "$here/{WORK}" "${{STEPS:-{REAL_STEPS}}}" "${{RESULT:-$PWD/fine-tuned}}"'
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


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _workload(task: Task) -> Workload:
    return Workload.model_construct(**{name: task.workload[name] for name in Workload.model_fields if name in task.workload})


def _environment(config: Mapping[str, Any]) -> dict[str, str]:
    return {"OMP_NUM_THREADS": str(config["threads"])} if "threads" in config else {}
