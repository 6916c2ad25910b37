"""Tracker `optuna`: a study of Optuna's in a `study.db`, for optuna-dashboard and for programs that read it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from autoscout.core.config import Value
from autoscout.core.tracker import TrackedKnob, TrackedResult, TrackedStudy, TrackedTrial, Tracker
from autoscout.core.trial import Status
from autoscout.space.interchange.optuna import EXTRA, PREFIX

CONSTRAINTS = "constraints"
"""System attribute in which Optuna keeps how far each constraint is broken; above 0 it is."""
KEY, SPACE, SHAPES, NUMBER, TASK = (f"{PREFIX}{name}" for name in ("study", "space", "distributions", "trial", "task"))


@dataclass(frozen=True, kw_only=True)
class OptunaOptions:
    """Where the study goes.

    Attributes:
        folder: The result folder; given by the study.
        storage: An Optuna storage such as `sqlite:////home/me/study.db`, or a path of a SQLite file; `study.db` in the result folder when
            empty.
    """

    folder: str = ""
    storage: str = ""


class OptunaTracker(Tracker):
    """Optuna's study.db: what optuna-dashboard opens, with distributions, states, constraints and intermediate values."""

    requires = ("optuna",)
    extra = EXTRA

    def __init__(self, options: OptunaOptions | None = None) -> None:
        options = options or OptunaOptions()
        place = options.storage or str(Path(options.folder) / "study.db")
        self._url = place if "://" in place else f"sqlite:///{Path(place).absolute()}"
        self._tracked: TrackedStudy | None = None
        self._study: Any = None
        self._shapes: dict[str, Any] = {}

    def begin(self, study: TrackedStudy) -> str:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._shapes = {name: _distribution(knob) for name, knob in study.knobs.items()}
        shapes = {name: optuna.distributions.distribution_to_json(shape) for name, shape in self._shapes.items()}
        storage = optuna.storages.get_storage(self._url)
        name = study.name
        for summary in optuna.get_all_study_summaries(storage, include_best_trial=False):
            is_same = summary.user_attrs.get(KEY) == study.key
            if is_same and summary.user_attrs.get(SHAPES) != shapes:
                optuna.delete_study(study_name=summary.study_name, storage=storage)  # Optuna allows no other values later: written anew
            elif summary.study_name == study.name and not is_same:
                name = f"{study.name}-{study.key}"
        directions = [goal.direction.value for goal in study.goals]
        self._study = optuna.create_study(storage=storage, study_name=name, directions=directions, load_if_exists=True)
        self._tracked = study
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # experimental since 3.2, and what dashboards show
            self._study.set_metric_names([goal.metric for goal in study.goals])
        texts = {f"{PREFIX}{name}": value for name, value in study.settings.items()}
        for attribute, value in {**texts, SPACE: study.space, TASK: study.task, SHAPES: shapes, KEY: study.key}.items():
            if self._study.user_attrs.get(attribute) != value:
                self._study.set_user_attr(attribute, value)
        return f"optuna-dashboard {self._url}"

    def sent(self) -> Collection[int]:
        return {trial.user_attrs[NUMBER] for trial in self._study.get_trials(deepcopy=False) if NUMBER in trial.user_attrs}

    def add(self, trial: TrackedTrial) -> None:
        from optuna.trial import FrozenTrial, TrialState

        assert self._tracked is not None
        whole = len(trial.goals) == len(self._tracked.goals)
        state = TrialState.COMPLETE if whole else TrialState.PRUNED if trial.status is Status.BOUNDED else TrialState.FAIL
        notes = {f"{PREFIX}{name}": value for name, value in {"status": trial.status.value, **trial.notes}.items()}
        params = {name: value for name, value in trial.config.items() if _holds(self._shapes.get(name), value)}
        others = {f"{PREFIX}config.{name}": value for name, value in trial.config.items() if name not in params}
        excess = [bound for bound in trial.violations.values() if math.isfinite(bound)]
        self._study.add_trial(
            FrozenTrial(
                number=-1,  # Optuna's storage counts itself
                trial_id=-1,
                state=state,
                value=None,
                values=list(trial.goals.values()) if whole else None,
                datetime_start=datetime.fromtimestamp(trial.begun_s),
                datetime_complete=datetime.fromtimestamp(trial.ended_s),
                params=params,
                distributions={name: self._shapes[name] for name in params},
                user_attrs={**trial.metrics, **notes, **others, NUMBER: trial.number},
                system_attrs={CONSTRAINTS: excess} if excess else {},
                intermediate_values=self._intermediate(trial),
            )
        )

    def end(self, result: TrackedResult) -> None:
        texts = {f"result/{name}": value for name, value in {**result.metrics, **result.notes, "state": result.state.value}.items()}
        for name, value in texts.items():
            self._study.set_user_attr(name, value)

    def _intermediate(self, trial: TrackedTrial) -> dict[int, float]:
        """The first goal by step, where there is more than one; of a trial that was stopped early what it had reached."""
        assert self._tracked is not None
        metric = self._tracked.goals[0].metric
        values: Iterable[float] = trial.samples.get(metric, ())
        steps = dict(enumerate(values))
        if not steps and trial.status is Status.BOUNDED and metric in trial.metrics:
            return {0: trial.metrics[metric]}
        return steps if len(steps) > 1 else {}


def _distribution(knob: TrackedKnob) -> Any:
    """As Optuna has it: numbers with equal steps are a range, everything else is a choice."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    values: tuple[Any, ...] = knob.values
    if knob.ends:
        kind = IntDistribution if all(type(end) is int for end in knob.ends) else FloatDistribution
        return kind(*knob.ends, log=knob.log)
    if len(values) > 1 and all(type(value) is int for value in values):
        step = values[1] - values[0]
        if step > 0 and values == tuple(range(values[0], values[-1] + 1, step)):
            return IntDistribution(values[0], values[-1], step=step)
    if len(values) > 2 and all(type(value) is float for value in values):
        steps = [after - before for before, after in pairwise(values)]
        if steps[0] > 0 and all(math.isclose(step, steps[0], rel_tol=1e-6) for step in steps):
            return FloatDistribution(values[0], values[-1])  # no step: what it computes is a little off the values that were measured
    return CategoricalDistribution(values)


def _holds(shape: Any, value: Value) -> bool:
    """Whether Optuna takes the value; a space may have become wider since the study began."""
    if shape is None:
        return False
    if hasattr(shape, "choices"):
        return any(type(choice) is type(value) and choice == value for choice in shape.choices)
    return not isinstance(value, str) and shape.low <= value <= shape.high and (shape.step is None or (value - shape.low) % shape.step == 0)


__all__ = ["OptunaTracker"]
