"""What the training backends have in common: the base classes, and the launch of a trial."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from autoscout.common.outcome import is_number
from autoscout.core.config import Config
from autoscout.core.launch import Completed, Launch, Resources
from autoscout.core.protocols import Backend
from autoscout.core.task import Task
from autoscout.core.trial import Fidelity, Measurement
from autoscout.space import Space
from autoscout.training.hardware import local_processes
from autoscout.training.outcome import outcome
from autoscout.training.protocol import CURVES, FAILED, HOSTFILE, INPUT, PROGRAM, RESULT, STAGE
from autoscout.training.workload import TrainingWorkload, lengthened, workload_of


def training_launch(
    *,
    argv: Sequence[str],
    ranks: int,
    config: Mapping[str, Any],
    workload: TrainingWorkload,
    hardware: Mapping[str, Any],
    name: str,
    env: Mapping[str, str] | None = None,
    cwd: str = "",
    files: Mapping[str, str] | None = None,
    depths: Sequence[int] = (),
    layers: int = 0,
    program: str = "",
    first_only: bool = False,
) -> Launch:
    """The launch.

    Args:
        argv: Command of one process, or of a launcher when `ranks` is 0; `{folder}` in it is the folder of the trial.
        ranks: Processes to start.
        config: What they find in `$AUTOSCOUT_CONFIG`.
        workload: How long to measure.
        hardware: `device`, `processes`, `cores`.
        name: Of the configuration.
        env: Further variables.
        cwd: Where the processes run; the folder of the trial when empty.
        files: Further files for that folder.
        depths: Two depths to measure the built-in model at, instead of its own `layers`.
        layers: To extrapolate to.
        program: That compiles extensions, where it is not the first word of `argv`.
        first_only: Whether `argv` is a launcher that reaches all machines by itself, instead of being started on each.
    """
    plan = workload.plan
    trial = {
        "argv": list(argv),
        "ranks": ranks,
        "env": dict(env or {}),
        "cwd": cwd,
        "config": dict(config),
        "plan": {name: getattr(plan, name) for name in ("warm_up", "least", "most", "settled", "enough_s")},
        "loss_steps": workload.loss_steps,
        "hang_s": workload.hang_s,
        "max_loss_gap": workload.max_loss_gap,
        "max_first_gap": workload.max_first_gap,
        "depths": list(depths),
        "layers": layers,
        "program": program,
        "nodes": int(hardware.get("nodes", 1)),
        "local": local_processes(hardware),
        "first_only": first_only,
    }
    on_gpu = hardware["device"] == "cuda"
    resources = Resources(
        cpus=int(hardware["cores"]),
        gpus=local_processes(hardware) if on_gpu else 0,
        nodes=int(hardware.get("nodes", 1)),
        first_only=first_only,
    )
    return Launch(
        argv=(sys.executable, "-m", PROGRAM, INPUT),
        files={INPUT: json.dumps(trial, indent=1, sort_keys=True) + "\n", **(_hostfile(hardware) if first_only else {}), **(files or {})},
        resources=resources,
        limit_s=workload.limit_s,
        outputs=(RESULT, STAGE),
        name=name,
    )


def _hostfile(hardware: Mapping[str, Any]) -> dict[str, str]:
    """The hosts in the form that launchers read, where the task names any; otherwise the executor writes those that it has chosen."""
    hosts = hardware.get("hosts") or {}
    return {HOSTFILE: "".join(f"{host} slots={slots}\n" for host, slots in hosts.items())} if hosts else {}


class TrainingBackend(Backend):
    """The label of extrapolated figures, the outcome of the trial program, and the longer run of a final."""

    curves: ClassVar = CURVES

    def long_run(self, task: Task) -> tuple[Task, int]:
        workload = workload_of(TrainingWorkload, task)
        usual = max(workload.loss_steps, workload.warm_up + workload.least_steps)
        return lengthened(task), workload.long_steps if workload.long_steps > usual and not task.workload.get("depths") else 0

    def packages(self, task: Task) -> Sequence[str]:
        """A command of the user's brings its own environment."""
        return () if task.workload.get("command") else self.requires

    def serve(self, config: Config, task: Task) -> Sequence[str]:
        """The user's own command, which the launch hides."""
        if not task.workload.get("command"):
            return ()
        argv: list[str] = json.loads(self.render(config, task, seed=0).files[INPUT])["argv"]
        plain = argv[-1].removeprefix("exec ")
        return shlex.split(plain) if plain != argv[-1] and "$" not in plain else argv

    def fidelity(self, task: Task) -> Fidelity:
        """Figures of two shallow models, extrapolated, are not measured."""
        return Fidelity.SIMULATED if task.workload.get("depths") else Fidelity.MEASURED

    def parse(self, completed: Completed, task: Task) -> Measurement:
        return outcome(completed, task.objective.metric)


def nearest_config(space: Space, values: Mapping[str, Any]) -> Config | None:
    """The default with some knobs changed, as far as the space allows; None where it has no such values."""
    knobs = Config({name: value for name, value in values.items() if name in space.knobs and value in space.knobs[name]})
    return space.project({**space.default(), **knobs}, knobs) if knobs and space.feasible(knobs) else None


class SharedProcess(TrainingBackend):
    """Several configurations in one launch.

    Every one of them builds its model anew from the same weights; a failure costs the others a fresh start and nothing else. What is
    compiled stays with a process, so such configurations get one of their own, as do a user's script and two depths.
    """

    shares_process: ClassVar[bool] = True
    soft: ClassVar[frozenset[str]]
    """Knobs that a running process can change."""

    def process_of(self, config: Config, task: Task) -> Config | None:
        compiles = config.get("compile", "off") != "off" or config.get("torch_compile", False)
        if compiles or task.workload.get("command") or task.workload.get("depths"):
            return None
        return Config({name: value for name, value in config.items() if name not in self.soft})

    def render_together(self, configs: Sequence[Config], task: Task, seed: int) -> Launch:
        launches = [self.render(config, task, seed) for config in configs]
        trials = [json.loads(launch.files[INPUT]) for launch in launches]
        turns = [{"config": one["config"]} for one in trials]
        first = launches[0]
        return replace(
            first,
            files={**first.files, INPUT: json.dumps({**trials[0], "turns": turns}, indent=1, sort_keys=True) + "\n"},
            limit_s=sum(launch.limit_s or 0.0 for launch in launches) or None,
        )

    def divide(self, completed: Completed, count: int) -> list[Completed | None]:
        turns = _turns(completed.outputs.get(RESULT, ""))[:count]
        taken = [float(turn["took_s"]) for turn in turns]
        whole_s = max(completed.wall_s, sum(taken))
        parts: list[Completed | None] = []
        for turn, took_s in zip(turns, taken, strict=True):
            outputs = {RESULT: json.dumps(turn), STAGE: str(turn.get("stage", ""))}
            parts.append(
                replace(
                    completed,
                    returncode=FAILED if "failure" in turn else 0,
                    stdout="",
                    stderr=str(turn.get("log", "")),
                    outputs=outputs,
                    wall_s=took_s,
                    cpu_s=completed.cpu_s * took_s / whole_s if whole_s else 0.0,
                    timed_out=False,
                    out_of_memory=False,
                    cancelled=False,
                )
            )
        if len(parts) < count:  # the one that was under way when the launch ended
            outputs = {name: text for name, text in completed.outputs.items() if name != RESULT}
            parts.append(replace(completed, outputs=outputs, wall_s=max(0.0, completed.wall_s - sum(taken))))
        return [*parts, *([None] * (count - len(parts)))]


def _turns(text: str) -> list[Mapping[str, Any]]:
    """What the trial program has written of each configuration; nothing of what cannot be read."""
    try:
        turns = json.loads(text or "{}").get("turns", [])
        return [turn for turn in turns if is_number(turn["took_s"])]
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return []
