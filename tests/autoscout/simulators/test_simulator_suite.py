"""The suite of simulators notices a simulator that breaks a rule."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.protocols import Prediction, Simulator
from autoscout.core.task import Task
from autoscout.core.trial import Fidelity, Trial
from autoscout.testing.simulator import SimulatorSuite, example


class Good(Simulator):
    """Predicts the mean of what was measured, more for more threads."""

    def __init__(self) -> None:
        self.mean = 1.0

    @property
    def knobs(self) -> frozenset[str]:
        return frozenset({"threads"})

    def predict(self, configs: Sequence[Config], task: Task) -> Prediction:
        threads = np.array([float(config.get("threads", 1)) for config in configs], dtype=np.float64)  # type: ignore[arg-type]
        ones = np.ones(len(configs))
        return Prediction(value=self.mean * np.log1p(threads), spread=0.5 * ones, feasible=ones, known=0.5 * ones)

    def fit(self, trials: Sequence[Trial], task: Task) -> None:
        good = [trial.measurement for trial in trials if trial.ok and trial.measurement.fidelity is Fidelity.MEASURED]
        values = [done.metrics[task.objective.metric] for done in good if task.objective.metric in done.metrics]
        self.mean = float(np.mean(values)) if values else 1.0


class Infinite(Good):
    def predict(self, configs: Sequence[Config], task: Task) -> Prediction:
        return replace(super().predict(configs, task), value=np.full(len(configs), np.inf))


class Scalar(Good):
    def predict(self, configs: Sequence[Config], task: Task) -> Prediction:
        return replace(super().predict(configs, task), spread=np.array(0.5))


class Certain(Good):
    def predict(self, configs: Sequence[Config], task: Task) -> Prediction:
        return replace(super().predict(configs, task), feasible=np.full(len(configs), 1.5))


class Sociable(Good):
    def predict(self, configs: Sequence[Config], task: Task) -> Prediction:
        plain = super().predict(configs, task)
        return replace(plain, value=plain.value + len(configs))


class Tired(Good):
    asked = 0

    def predict(self, configs: Sequence[Config], task: Task) -> Prediction:
        self.asked += 1
        plain = super().predict(configs, task)
        return replace(plain, value=plain.value + self.asked)


class Moody(Good):
    def __init__(self) -> None:
        super().__init__()
        self.mean = float(np.random.default_rng().random())


class Curious(Good):
    def predict(self, configs: Sequence[Config], task: Task) -> Prediction:
        plain = super().predict(configs, task)
        return replace(plain, value=plain.value + np.array([len(config) for config in configs]))


class Closed(Good):
    def __init__(self) -> None:
        super().__init__()
        self.rule = lambda: 1.0


class Fragile(Good):
    def fit(self, trials: Sequence[Trial], task: Task) -> None:
        self.mean = float(np.mean([trial.measurement.metrics[task.objective.metric] for trial in trials]))


class Gullible(Good):
    def fit(self, trials: Sequence[Trial], task: Task) -> None:
        super().fit([replace(trial, measurement=replace(trial.measurement, fidelity=Fidelity.MEASURED)) for trial in trials], task)


class Stubborn(Good):
    def fit(self, trials: Sequence[Trial], task: Task) -> None:
        before = self.mean
        super().fit(trials, task)
        self.mean = (self.mean + before) / 2


class Presumptuous(Good):
    needs_no_trials = True


class Refusing(Good):
    needs_no_trials = True

    def predict(self, configs: Sequence[Config], task: Task) -> Prediction:
        raise ConfigError("understands nothing")


class Explaining(Good):
    def breakdown(self, config: Config, task: Task) -> dict[str, float]:
        return {"waiting": -1.0}


class Stranger:
    """Does not derive from `Simulator`."""

    @classmethod
    def example(cls) -> None:
        return None


def broken(kind: Any) -> set[str]:
    """Names of the tests of the suite that a simulator fails."""
    suite, (space, task) = SimulatorSuite(), example(kind)
    offered = {"make": kind, "space": space, "task": task}
    failed = set()
    for name, test in inspect.getmembers(suite, inspect.ismethod):
        if name.startswith("test_"):
            try:
                test(**{argument: offered[argument] for argument in inspect.signature(test).parameters})
            except Exception:  # what a broken simulator raises is a failure like any other
                failed.add(name)
    return failed


def test_a_good_one_passes() -> None:
    assert broken(Good) == set()


@pytest.mark.parametrize(
    ("kind", "test"),
    [
        (Infinite, "test_one_answer_for_each"),
        (Scalar, "test_nothing_asked_nothing_answered"),
        (Certain, "test_one_answer_for_each"),
        (Sociable, "test_together_as_one_by_one"),
        (Tired, "test_predicting_changes_nothing"),
        (Moody, "test_two_of_a_kind_agree"),
        (Curious, "test_other_knobs_are_ignored"),
        (Closed, "test_it_pickles"),
        (Fragile, "test_any_trials_will_do"),
        (Gullible, "test_simulated_answers_teach_nothing"),
        (Stubborn, "test_a_longer_list_replaces_a_shorter_one"),
        (Presumptuous, "test_without_trials_it_has_an_answer_or_refuses_the_task"),
        (Refusing, "test_without_trials_it_has_an_answer_or_refuses_the_task"),
        (Explaining, "test_parts_of_the_time_are_seconds"),
        (Stranger, "test_is_a_simulator"),
    ],
)
def test_a_broken_one_is_noticed(kind: type, test: str) -> None:
    assert test in broken(kind)
