"""What the training backends have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autoscout.core.config import Config
from autoscout.core.launch import Completed
from autoscout.core.protocols import Backend
from autoscout.core.task import Task
from autoscout.core.trial import Fidelity, Measurement
from autoscout.space import Space
from autoscout.training.outcome import outcome


class TrainingBackend(Backend):
    """The label of extrapolated figures, and the outcome of the trial program."""

    def fidelity(self, task: Task) -> Fidelity:
        """Figures of two shallow models, extrapolated, are not measured."""
        return Fidelity.SIMULATED if task.workload.get("depths") else Fidelity.MEASURED

    def parse(self, completed: Completed, task: Task) -> Measurement:
        return outcome(completed, task.objective.metric)


def near(space: Space, values: Mapping[str, Any]) -> Config | None:
    """The default with some knobs changed, as far as the space allows; None where it has no such values."""
    known = Config({name: value for name, value in values.items() if name in space.knobs and value in space.knobs[name]})
    return space.project({**space.default(), **known}, known) if known and space.feasible(known) else None


__all__ = ["TrainingBackend", "near"]
