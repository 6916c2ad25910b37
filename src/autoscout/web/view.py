"""What the dashboard shows of one study at one moment; every part is worked out when it is first asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from autoscout.analysis.ablation import Ablation, ablate
from autoscout.analysis.contributions import Contribution, contributions
from autoscout.analysis.curves import ordered
from autoscout.analysis.importance import Importance, knob_importance
from autoscout.analysis.labels import namer
from autoscout.analysis.predicted import PredictedTrial, Predictions
from autoscout.analysis.summary import Summary, summarise
from autoscout.core.actions import Action, Pulse, invalid_trials, raised
from autoscout.core.config import Config
from autoscout.core.protocols import StudyRecord
from autoscout.core.task import Budget
from autoscout.core.trial import Trial
from autoscout.report.coordinates import varied_knobs
from autoscout.study.about import About
from autoscout.study.budget import counted, used_share
from autoscout.study.folder import Folder

Shown = TypeVar("Shown")

MOST_EXPLAINED = 5_000
"""Trials up to which contributions and the way from the default to the best are worked out: they compare configurations pair by pair."""


@dataclass(frozen=True, kw_only=True)
class View:
    """One study, frozen. Trials that were marked invalid are listed, and count for nothing else."""

    record: StudyRecord
    trials: tuple[Trial, ...]
    actions: tuple[Action, ...]
    pulse: Pulse
    folder: Folder | None = None

    def prepare(self) -> None:
        """Work out what the first screen shows, so that whoever asks does not wait."""
        assert self.summary is not None

    def once(self, name: str, make: Callable[[], Shown]) -> Shown:
        """What `make` gives, made once for this view: pages of a huge study are drawn once, not for every reader."""
        if name not in self._made:
            self._made[name] = make()
        found: Shown = self._made[name]
        return found

    @cached_property
    def _made(self) -> dict[str, Any]:
        return {}

    @cached_property
    def about(self) -> About:
        return About.from_record(self.record)

    @property
    def budget(self) -> Budget:
        """The study's, with the bounds that actions raised."""
        return raised(self.record.task.budget, self.actions)

    @cached_property
    def invalid(self) -> dict[int, str]:
        """Numbers of the trials that were marked invalid, and why."""
        return invalid_trials(self.actions)

    @cached_property
    def everything(self) -> list[Trial]:
        """All trials in order, invalid ones too."""
        return ordered(self.trials)

    @cached_property
    def kept(self) -> list[Trial]:
        """The trials that count, in order."""
        return [trial for trial in self.everything if trial.number not in self.invalid] if self.invalid else self.everything

    @cached_property
    def by_number(self) -> dict[int, Trial]:
        return {trial.number: trial for trial in self.everything}

    @cached_property
    def default_config(self) -> Config:
        return self.about.default_config(self.trials)

    @cached_property
    def best_config(self) -> Config | None:
        return self.summary.best.config if self.summary.best else None

    @cached_property
    def name_of(self) -> Callable[[Config], str]:
        return namer(self.default_config, self.about.knobs)

    @cached_property
    def summary(self) -> Summary:
        about = self.about
        return summarise(
            self.record.task,
            self.kept,
            self.default_config,
            knobs=about.knobs,
            study=self.record.name,
            name_of=self.name_of,
            exact=about.exact,
            load=about.load,
        )

    @cached_property
    def importance(self) -> Importance:
        return knob_importance(self.summary.task, self.kept)

    @cached_property
    def varied(self) -> list[str]:
        """Knobs that took more than one value, the most important first."""
        return varied_knobs(self.kept, self.about.knobs, self.importance)

    @cached_property
    def ablation(self) -> Ablation | None:
        best = self.best_config
        if best is None or len(self.kept) > MOST_EXPLAINED:
            return None
        return ablate(self.summary.task, self.kept, self.default_config, best)

    @cached_property
    def contributions(self) -> tuple[Contribution, ...]:
        best, summary = self.best_config, self.summary
        if best is None or len(self.kept) > MOST_EXPLAINED:
            return ()
        return contributions(summary.task, self.kept, self.default_config, best, gain=summary.gain, exact=self.about.exact)

    @cached_property
    def predictions(self) -> Predictions | None:
        """What a simulator predicted: with each trial, or as the last report of the study says; None without."""
        task, first = self.summary.task, dict[Config, Trial]()
        for trial in self.kept:
            if "predicted" in trial.measurement.conditions:
                first.setdefault(trial.config, trial)
        rows = [
            PredictedTrial(
                trial=trial.number,
                name=self.name_of(config),
                predicted=trial.measurement.conditions["predicted"],
                measured=task.objective.value(trial.measurement),
                status=trial.measurement.status.value,
            )
            for config, trial in first.items()
        ]
        if rows:
            return Predictions(simulator="the simulator", metric=task.objective.metric, rows=tuple(rows))
        return self._reported()

    @property
    def running(self) -> int:
        """Trials under way."""
        return len(self.pulse.workers)

    @cached_property
    def searched(self) -> int:
        """Trials that the budget counts."""
        return len(counted(self.kept))

    @cached_property
    def used(self) -> float:
        """How much of the tightest bound is used, 0 to 1."""
        return min(1.0, used_share(self.budget, self.kept, self.summary.spent.wall_s))

    def _reported(self) -> Predictions | None:
        try:
            data: Any = json.loads((self.folder.path / "report.json").read_text(encoding="utf-8")) if self.folder else {}
            told = data.get("predicted")
            rows = [
                PredictedTrial(**{name: row[name] for name in ("trial", "name", "predicted", "measured", "status")}) for row in told["rows"]
            ]
            return Predictions(simulator=str(told["simulator"]), metric=self.record.task.objective.metric, rows=tuple(rows))
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None  # no report yet, or one of an earlier version


__all__ = ["View"]
