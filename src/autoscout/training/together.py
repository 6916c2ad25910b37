"""Training backends whose processes can take one configuration after another: starting them often takes longer than the steps."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from autoscout.common.outcome import is_number
from autoscout.core.config import Config
from autoscout.core.launch import Completed, Launch
from autoscout.core.task import Task
from autoscout.training.backend import TrainingBackend
from autoscout.training.files import FAILED, INPUT, RESULT, STAGE


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
        given = [json.loads(launch.files[INPUT]) for launch in launches]
        turns = [{name: one[name] for name in ("config", "reference")} for one in given]
        first = launches[0]
        return replace(
            first,
            files={**first.files, INPUT: json.dumps({**given[0], "turns": turns}, indent=1, sort_keys=True) + "\n"},
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
        found = json.loads(text or "{}").get("turns", [])
        return [turn for turn in found if is_number(turn["took_s"])]
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return []


__all__ = ["SharedProcess"]
