"""The backend itself: task, space, launch, outcome, hand-over."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Mapping
from typing import Any, ClassVar

from autoscout.backends.deepspeed.settings import FILE, OUR_OWN, STAGES, TEMPLATE, ds_config
from autoscout.backends.deepspeed.space import build_space
from autoscout.backends.deepspeed.workload import DeepSpeedWorkload, read_workload
from autoscout.core.config import Config
from autoscout.core.launch import Launch
from autoscout.core.names import Names
from autoscout.core.protocols import once_per_task
from autoscout.core.task import Task
from autoscout.space import Space
from autoscout.training.backend import TrainingBackend, training_launch
from autoscout.training.export import REAL_STEPS, export_files
from autoscout.training.protocol import HOSTFILE, WORK
from autoscout.training.workload import read_training_task, reference, workload_of

PORT = "29500"  # where processes meet, DeepSpeed's default
WORKER = "autoscout.backends.deepspeed.worker"


class DeepSpeedBackend(TrainingBackend):
    """A training step of DeepSpeed: ZeRO, offloading, buckets, batches; a built-in GPT that needs no files, or your own script.

    Every configuration does the same work: one optimizer step over the same global batch. What is tuned is DeepSpeed's own file.
    """

    requires: ClassVar[tuple[str, ...]] = ("torch", "deepspeed")
    extra: ClassVar = "deepspeed"

    @classmethod
    def example(cls) -> Mapping[str, object]:
        return {"workload": {"model": "micro", "most_steps": 6, "loss_steps": 4}, "hardware": {"device": "cpu", "gpus": 0}}

    def task(self, given: Mapping[str, object]) -> Task:
        return read_training_task("deepspeed", given, read_workload, self.requires)

    def load(self, task: Task) -> str:
        workload = workload_of(DeepSpeedWorkload, task)
        what = workload.command or f"the built-in model {workload.model}"
        return f"Steps of training {what} over {workload.global_batch} sequences, the same for every configuration."

    @once_per_task
    def space(self, task: Task) -> Space:
        return build_space(workload_of(DeepSpeedWorkload, task), task.hardware)

    def search(self, task: Task, space: Space) -> tuple[str, Mapping[str, Any]] | None:
        """DeepSpeed's own way, a grid in stages, where the budget suffices for it."""
        stages = [[name for name in stage if name in space.knobs and len(space.knobs[name].values) > 1] for stage in STAGES]
        stages = [stage for stage in stages if stage]
        sizes = [1] * len(stages)
        for number, stage in enumerate(stages):
            for name in stage:
                sizes[number] *= len(space.knobs[name].values)
        if not stages or task.budget.trials is None or sum(sizes) > task.budget.trials:
            return None
        template = {**TEMPLATE, **OUR_OWN}
        return "grid", {"stages": stages, "template": _only(template, space)}

    def render(self, config: Config, task: Task, seed: int) -> Launch:  # noqa: ARG002 - losses are compared, so the data stay the same
        workload = workload_of(DeepSpeedWorkload, task)
        work = {
            "shape": {} if workload.command else workload.shape,
            "device": task.hardware["device"],
            "seed": workload.seed,
            "global_batch": workload.global_batch,
            "steps": workload.plan.steps,
        }
        files = {FILE: self._file(config, task), **({} if workload.command else {WORK: json.dumps(work, indent=1, sort_keys=True) + "\n"})}
        built_in = (sys.executable, "-m", WORKER, f"{{folder}}/{WORK}", f"{{folder}}/{FILE}")
        return training_launch(
            argv=[word.replace("{ds_config}", f"{{folder}}/{FILE}") for word in workload.argv] if workload.command else built_in,
            ranks=0 if workload.command else int(task.hardware["processes"]),
            config=config,
            workload=workload,
            hardware=task.hardware,
            reference=reference(task, config, self.space(task).default()),
            env=_environment(config, task),
            cwd=workload.cwd if workload.command else "",
            files=files,
            depths=() if workload.command else workload.depths,
            layers=0 if workload.command else workload.shape["layers"],
            name=Names(self.space(task).knobs).name(config),
        )

    def export(self, config: Config, task: Task) -> Mapping[str, str]:
        workload, launch = workload_of(DeepSpeedWorkload, task), self.render(config, task, seed=0)
        processes = int(task.hardware["processes"])
        if workload.command:
            command = " ".join(_shell_word(word.replace("{port}", PORT)) for word in workload.argv)
            notes = [f"Runs your training script with the DeepSpeed file found ({FILE})."]
        else:
            launcher = f'"$(dirname "$PYTHON")/deepspeed" --num_gpus {processes}'
            if task.hardware["device"] == "cpu":
                launcher = f'"$PYTHON" -m torch.distributed.run --standalone --nproc-per-node {processes}'
            module = "--module" if task.hardware["device"] != "cpu" else "-m"
            command = f'{launcher} {module} {WORKER} "$here/{WORK}" "$here/{FILE}" "${{STEPS:-{REAL_STEPS}}}"'
            notes = [f"Trains the built-in model; STEPS changes for how long. {FILE} is what your own script needs."]
        return export_files(
            command=command,
            config=config,
            hardware=task.hardware,
            launch=launch,
            env=_environment(config, task),
            cwd=workload.cwd if workload.command else "",
            notes=notes,
        )

    def _file(self, config: Mapping[str, Any], task: Task) -> str:
        workload = workload_of(DeepSpeedWorkload, task)
        settings = ds_config(
            config,
            global_batch=workload.global_batch,
            processes=int(task.hardware["processes"]),
            nvme_path=workload.nvme_path,
            base=workload.base,
        )
        return json.dumps(settings, indent=2, sort_keys=True) + "\n"


def _only(template: Mapping[str, Any], space: Space) -> dict[str, Any]:
    """The template without holes that the space does not fill."""
    from autoscout.common.templates import holes

    filled: dict[str, Any] = {}
    for name, part in template.items():
        if isinstance(part, Mapping):
            if inner := _only(part, space):
                filled[name] = inner
        elif all(hole in space.knobs for hole in holes(part)):
            filled[name] = part
    return filled


def _shell_word(word: str) -> str:
    """A word of the user's command for a shell, with files next to the script in place of `{ds_config}` and `{hostfile}`."""
    local_files = {"{ds_config}": FILE, "{hostfile}": HOSTFILE}
    parts = re.split("(" + "|".join(map(re.escape, local_files)) + ")", word)
    return "".join(f'"$here/{local_files[part]}"' if part in local_files else shlex.quote(part) for part in parts if part) or "''"


def _environment(config: Mapping[str, Any], task: Task) -> dict[str, str]:
    variables = {"DS_ACCELERATOR": "cpu"} if task.hardware["device"] == "cpu" else {}
    return {**variables, **({"OMP_NUM_THREADS": str(config["threads"])} if "threads" in config else {})}
