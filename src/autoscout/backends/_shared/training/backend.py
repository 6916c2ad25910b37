"""What the training backends have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod

from autoscout.backends._shared.training.outcome import outcome
from autoscout.common.templates import canonical
from autoscout.core.launch import Completed
from autoscout.core.task import Task
from autoscout.core.trial import Fidelity, Measurement
from autoscout.space import Space


class TrainingBackend(ABC):
    """One space for each set of facts, the label of extrapolated figures, and the outcome of the trial program."""

    def __init__(self) -> None:
        self._spaces: dict[str, Space] = {}  # by the facts they depend on: building one takes longer than rendering a launch

    @abstractmethod
    def build_space(self, task: Task) -> Space:
        """The space of a task, built anew."""

    def space(self, task: Task) -> Space:
        facts = canonical([dict(task.workload), dict(task.hardware)])
        if facts not in self._spaces:
            self._spaces[facts] = self.build_space(task)
        return self._spaces[facts]

    def fidelity(self, task: Task) -> Fidelity:
        """Figures of two shallow models, extrapolated, are not measured."""
        return Fidelity.SIMULATED if task.workload.get("depths") else Fidelity.MEASURED

    def parse(self, completed: Completed, task: Task) -> Measurement:
        return outcome(completed, task.objective.metric)


__all__ = ["TrainingBackend"]
