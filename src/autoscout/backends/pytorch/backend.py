"""The backend itself: task, space, launch, outcome, hand-over."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, ClassVar

from autoscout.backends.pytorch.space import build_space
from autoscout.backends.pytorch.workload import PyTorchWorkload, own_space, read_workload
from autoscout.common.fields import refuse_if
from autoscout.core.config import Config
from autoscout.core.launch import Launch
from autoscout.core.names import Names
from autoscout.core.protocols import once_per_task
from autoscout.core.task import Task
from autoscout.core.user import UserLaunch
from autoscout.space import Space
from autoscout.training.backend import SharedProcess, nearest_config, training_launch
from autoscout.training.command import command_facts, given
from autoscout.training.export import REAL_STEPS, export_files, torchrun
from autoscout.training.hardware import machines, outside_environment, outside_knobs
from autoscout.training.launches import complete, read_training_launch
from autoscout.training.protocol import WORK
from autoscout.training.workload import read_training_task, workload_of

WORKER = "autoscout.training.builtin"


class PyTorchBackend(SharedProcess):
    """A training step of PyTorch: a built-in GPT that needs no files, or your own script.

    Every configuration does the same work: one optimizer step over the same global batch, from the same weights and data. `task` reads
    facts of the machine (cores, GPUs) unless they are given.
    """

    requires: ClassVar[tuple[str, ...]] = ("torch",)
    extra: ClassVar = "torch"
    reads_any: ClassVar[bool] = True
    soft: ClassVar = frozenset({"micro_batch", "defer_sync", "precision", "recompute", "attention", "optimizer", "loss_chunks"})

    @classmethod
    def example(cls) -> Mapping[str, object]:
        return {"workload": {"model": "micro", "most_steps": 6, "loss_steps": 4}, "hardware": {"device": "cpu", "gpus": 0}}

    def task(self, given: Mapping[str, object]) -> Task:
        return read_training_task("pytorch", given, read_workload, self.requires)

    def read_launch(self, text: str, name: str) -> UserLaunch:
        start = read_training_launch(text, name)
        refuse_if(complete(start, start.words, name))
        return UserLaunch(workload={"command": start.line(), **start.cwd}, hardware=start.hardware, left_out=start.left_out)

    def load(self, task: Task) -> str:
        workload = workload_of(PyTorchWorkload, task)
        if workload.command:
            where = machines(task.hardware)
            return f"Training steps of your own script{where}, started anew for every measurement: {workload.command}"
        shape, where = workload.shape, machines(task.hardware)
        return (
            f"Steps of training the built-in model {workload.model} ({shape['layers']} layers) on "
            f"{task.hardware['processes']} processes{where}: "
            f"{workload.global_batch} sequences of {shape['sequence']} tokens, the same for every configuration."
        )

    @once_per_task
    def space(self, task: Task) -> Space:
        workload = workload_of(PyTorchWorkload, task)
        return self._own(workload, task.hardware) if workload.command else build_space(workload, task.hardware)

    def _own(self, workload: PyTorchWorkload, hardware: Mapping[str, Any]) -> Space:
        """The script's knobs, and those that need nothing of it."""
        declared = own_space(workload, command_facts(hardware))
        more = [knob for knob in outside_knobs(hardware) if knob.name not in declared.knobs]
        return Space([*declared.knobs.values(), *more], declared.constraints, facts=declared.facts)

    def hints(self, task: Task) -> tuple[Config, ...]:
        """One configuration of every family, and on a GPU what most people turn on first."""
        workload, space = workload_of(PyTorchWorkload, task), self.space(task)
        if workload.command:
            return ()
        fast = {"precision": "bf16", "optimizer": "fused"}
        candidates: list[dict[str, Any]] = []
        if task.hardware["device"] == "cuda":
            candidates += [{**fast, "compile": "default"}, fast]
        if int(task.hardware["processes"]) > 1:
            several = int(task.hardware["processes"])
            candidates += [{"dp": several, "data_parallel": "fsdp2"}, {"tp": several}, {"pp": several, "schedule": "1f1b"}]
        configs = [nearest_config(space, values) for values in candidates]
        return tuple(dict.fromkeys(config for config in configs if config is not None and config != space.default()))

    def render(self, config: Config, task: Task, seed: int) -> Launch:  # noqa: ARG002 - losses are compared, so the data stay the same
        workload = workload_of(PyTorchWorkload, task)
        common: dict[str, Any] = {
            "config": given(config),
            "workload": workload,
            "hardware": task.hardware,
            "env": outside_environment(config),
            "name": Names(self.space(task).knobs).name(config),
        }
        if workload.command:
            line, facts = workload.line, command_facts(task.hardware)
            argv = line.argv(config, facts, list(workload.knobs))
            return training_launch(argv=argv, ranks=0, cwd=workload.cwd, program=line.program, first_only=line.reaches_others, **common)
        work = {
            "shape": workload.shape,
            "device": task.hardware["device"],
            "seed": workload.seed,
            "global_batch": workload.global_batch,
            "steps": workload.plan.steps,
        }
        return training_launch(
            argv=(sys.executable, "-m", WORKER, f"{{folder}}/{WORK}"),
            ranks=int(task.hardware["processes"]),
            files={WORK: json.dumps(work, indent=1, sort_keys=True) + "\n"},
            depths=workload.depths,
            layers=workload.shape["layers"],
            **common,
        )

    def export(self, config: Config, task: Task) -> Mapping[str, str]:
        workload, launch = workload_of(PyTorchWorkload, task), self.render(config, task, seed=0)
        if workload.command:
            notes = ["Runs your training script with the settings found; it reads them with autoscout.training.config()."]
            return export_files(
                command=workload.line.line(config, command_facts(task.hardware), list(workload.knobs)),
                is_script=workload.line.is_script,
                config=given(config),
                hardware=task.hardware,
                launch=launch,
                env=outside_environment(config),
                cwd=workload.cwd,
                notes=notes,
                everywhere=not workload.line.reaches_others,
            )
        return export_files(
            command=f'{torchrun(task.hardware)} -m {WORKER} "$here/{WORK}" "${{STEPS:-{REAL_STEPS}}}"',
            config=config,
            hardware=task.hardware,
            launch=launch,
            env=outside_environment(config),
            notes=["Trains the built-in model; STEPS changes for how long. Your own script reads the same settings: see the guide."],
        )
