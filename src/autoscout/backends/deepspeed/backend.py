"""The backend itself: task, space, launch, outcome, hand-over."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, ClassVar

from autoscout.backends.deepspeed.settings import FILE, OUR_OWN, STAGES, TEMPLATE, accumulation, ds_config
from autoscout.backends.deepspeed.space import build_space
from autoscout.backends.deepspeed.stages import affordable
from autoscout.backends.deepspeed.workload import DERIVED, DeepSpeedWorkload, goal_of, read_workload
from autoscout.common.fields import refuse_if
from autoscout.core.config import Config, Value
from autoscout.core.errors import Fault, NoLaunchError
from autoscout.core.launch import Launch
from autoscout.core.names import Names
from autoscout.core.protocols import once_per_task
from autoscout.core.task import Task
from autoscout.core.user import UserLaunch
from autoscout.space import Space
from autoscout.training.backend import TrainingBackend, training_launch
from autoscout.training.command import command_facts
from autoscout.training.export import REAL_STEPS, export_files, torchrun
from autoscout.training.hardware import local_processes, machines
from autoscout.training.launches import complete, read_training_launch
from autoscout.training.protocol import WORK
from autoscout.training.workload import read_training_task, workload_of

FAST = ("zero_stage", "micro_batch")  # what DeepSpeed's own tuner searches in its fast mode
WORKER = "autoscout.backends.deepspeed.worker"


class DeepSpeedBackend(TrainingBackend):
    """A training step of DeepSpeed: ZeRO, offloading, buckets, batches; a built-in GPT that needs no files, or your own script.

    Every configuration does the same work: one optimizer step over the same global batch. What is tuned is DeepSpeed's own file.
    """

    requires: ClassVar[tuple[str, ...]] = ("torch", "deepspeed")
    extra: ClassVar = "deepspeed"
    space_file: ClassVar[str] = "tuning_space"

    @classmethod
    def example(cls) -> Mapping[str, object]:
        return {"workload": {"model": "micro", "most_steps": 6, "loss_steps": 4}, "hardware": {"device": "cpu", "gpus": 0}}

    def task(self, given: Mapping[str, object]) -> Task:
        task = read_training_task("deepspeed", _with_goal(given), read_workload, self.requires)
        workload = workload_of(DeepSpeedWorkload, task)
        if workload.command:
            facts = {**command_facts(task.hardware), **dict.fromkeys(DERIVED, 1)}
            refuse_if(list(workload.line.space_faults(self.space(task), facts)))
        return task

    def read_launch(self, text: str, name: str) -> UserLaunch:
        start = read_training_launch(text, name)
        refuse_if(complete(start, start.words, name))
        place, file = start.value_of("--deepspeed_config", "--deepspeed")
        if not file.endswith(".json"):
            rule, fix = "names no file of DeepSpeed's settings", "Give a command with --deepspeed_config FILE.json, or tune it with pytorch"
            raise NoLaunchError(Fault(where=name, rule=rule, fix=fix))
        settings = str(start.path(file))
        workload = {"command": start.line({place: "{ds_config}"}), "ds_config": settings, **start.cwd}
        return UserLaunch(workload=workload, hardware=start.hardware, left_out=start.left_out)

    def load(self, task: Task) -> str:
        workload = workload_of(DeepSpeedWorkload, task)
        what = workload.command or f"the built-in model {workload.model}"
        where = machines(task.hardware)
        return f"Steps of training {what}{where} over {workload.global_batch} sequences, the same for every configuration."

    @once_per_task
    def space(self, task: Task) -> Space:
        return build_space(workload_of(DeepSpeedWorkload, task), task.hardware)

    def resting(self, task: Task) -> tuple[str, ...]:
        """Knobs that a tuning space, or the fast mode of DeepSpeed's own tuner, leaves alone."""
        workload, knobs = workload_of(DeepSpeedWorkload, task), self.space(task).knobs
        if workload.exact:
            return tuple(name for name in knobs if name not in workload.exact)
        if workload.file.is_fast:
            return tuple(name for name in knobs if name not in FAST and name not in workload.file.scope)
        return ()

    def search(self, task: Task, space: Space) -> tuple[str, Mapping[str, Any]] | None:
        """DeepSpeed's own way, a grid, where the budget suffices for it: of all that a tuning space lists, or in stages."""
        options = {"template": _only({**TEMPLATE, **OUR_OWN, **_further(space)}, space)}
        if workload_of(DeepSpeedWorkload, task).exact:
            return "grid", options
        stages = affordable(space, STAGES, task.budget.trials)
        return ("grid", {**options, "stages": stages}) if stages else None

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
            argv=workload.line.argv(config, _facts(config, task), list(self.space(task).knobs)) if workload.command else built_in,
            program=workload.line.program if workload.command else "",
            first_only=bool(workload.command) and workload.line.reaches_others,
            ranks=0 if workload.command else int(task.hardware["processes"]),
            config=config,
            workload=workload,
            hardware=task.hardware,
            env=_environment(config, task),
            cwd=workload.cwd if workload.command else "",
            files=files,
            depths=() if workload.command else workload.depths,
            layers=0 if workload.command else workload.shape["layers"],
            name=Names(self.space(task).knobs).name(config),
        )

    def export(self, config: Config, task: Task) -> Mapping[str, str]:
        workload, launch = workload_of(DeepSpeedWorkload, task), self.render(config, task, seed=0)
        if workload.command:
            command = workload.line.line(config, _facts(config, task), list(self.space(task).knobs))
            notes = [f"Runs your training script with the DeepSpeed file found ({FILE})."]
        else:
            launcher = f'"$(dirname "$PYTHON")/deepspeed" --num_gpus {local_processes(task.hardware)} --module'
            if task.hardware["device"] == "cpu" or int(task.hardware.get("nodes", 1)) > 1:
                launcher = f"{torchrun(task.hardware)} -m"
            command = f'{launcher} {WORKER} "$here/{WORK}" "$here/{FILE}" "${{STEPS:-{REAL_STEPS}}}"'
            notes = [f"Trains the built-in model; STEPS changes for how long. {FILE} is what your own script needs."]
        return export_files(
            command=command,
            config=config,
            hardware=task.hardware,
            launch=launch,
            env=_environment(config, task),
            cwd=workload.cwd if workload.command else "",
            notes=notes,
            is_script=bool(workload.command) and workload.line.is_script,
            everywhere=not (workload.command and workload.line.reaches_others),
        )

    def _file(self, config: Mapping[str, Any], task: Task) -> str:
        workload = workload_of(DeepSpeedWorkload, task)
        settings = ds_config(
            config,
            self.space(task).knobs,
            global_batch=workload.global_batch,
            processes=int(task.hardware["processes"]),
            nvme_path=workload.nvme_path,
            base=workload.file.base,
            own_optimizer=bool(workload.command),
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


def _with_goal(given: Mapping[str, object]) -> Mapping[str, object]:
    """The description with the goal of the user's `autotuning` section, where it names none itself."""
    block, objective = given.get("workload"), given.get("objective") or {}
    if not isinstance(block, Mapping) or not isinstance(objective, Mapping) or {"metric", "metrics"} & set(objective):
        return given
    metric = goal_of(block.get("ds_config"))
    return {**given, "objective": {**objective, "metric": metric}} if metric else given


def _facts(config: Mapping[str, Any], task: Task) -> dict[str, Value]:
    """What a command may read besides knobs."""
    batch = int(task.workload["global_batch"])
    steps = accumulation(config, batch, int(task.hardware["processes"]))
    return {**command_facts(task.hardware), "accumulation": steps, "global_batch": batch}


def _further(space: Space) -> dict[str, Any]:
    """Settings of the user's file that are knobs by their path."""
    return {"further": {name.replace(".", "_"): f"${{{name}}}" for name in space.knobs if "." in name}}


def _environment(config: Mapping[str, Any], task: Task) -> dict[str, str]:
    variables = {"DS_ACCELERATOR": "cpu"} if task.hardware["device"] == "cpu" else {}
    return {**variables, **({"OMP_NUM_THREADS": str(config["threads"])} if "threads" in config else {})}
