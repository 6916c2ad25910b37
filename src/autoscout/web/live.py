"""What the dashboard shows of one study at one moment; every part is worked out when it is first asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from autoscout.analysis.curves import ordered
from autoscout.analysis.predicted import PredictedTrial, Predictions
from autoscout.analysis.result import StudyResult
from autoscout.analysis.summary import Summary
from autoscout.analysis.unseen import UnseenWindows
from autoscout.core.actions import Action, Pulse, invalid_trials, raised
from autoscout.core.config import Config
from autoscout.core.protocols import StudyRecord
from autoscout.core.secrecy import known_secrets
from autoscout.core.task import Budget
from autoscout.core.trial import Trial
from autoscout.report.sections.failures import MOST_NUMBERS
from autoscout.report.view import StudyView
from autoscout.study.about import About
from autoscout.study.budget import used_share
from autoscout.study.folder import Folder
from autoscout.study.ledger import Ledger

MOST_EXPLAINED = 5_000
"""Trials up to which contributions and the way from the default to the best are worked out."""
MOST_LINES = 600
"""Lines of the parallel coordinates: a page that changes while one looks must stay light."""


@dataclass(frozen=True, kw_only=True)
class LiveView:
    """One study, frozen. Trials that were marked invalid are listed, and count for nothing else."""

    record: StudyRecord
    trials: tuple[Trial, ...]
    actions: tuple[Action, ...]
    pulse: Pulse
    url: str
    folder: Folder | None = None

    def prepare(self) -> None:
        """Work out what the first screen shows, so that whoever asks does not wait."""
        assert self.summary is not None

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
    def all_trials(self) -> list[Trial]:
        """All trials in order, invalid ones too."""
        return ordered(self.trials)

    @cached_property
    def valid_trials(self) -> list[Trial]:
        """The trials that count, in order."""
        return [trial for trial in self.all_trials if trial.number not in self.invalid] if self.invalid else self.all_trials

    @cached_property
    def by_number(self) -> dict[int, Trial]:
        return {trial.number: trial for trial in self.all_trials}

    @cached_property
    def result(self) -> StudyResult:
        """Everything that the trials show."""
        return StudyResult(
            task=self.record.task,
            trials=self.valid_trials,
            default_config=self.about.default_config(self.trials),
            baseline=self.about.baseline_config,
            knobs=self.about.knobs,
            study=self.record.name,
            exact=self.about.exact,
            load=self.about.load,
            folder=str(self.folder.path) if self.folder else "",
            most_explained=MOST_EXPLAINED,
        )

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values of variables that no log is to show."""
        variables = self.record.task.workload.get("env")
        return known_secrets(variables) if isinstance(variables, Mapping) else ()

    @property
    def summary(self) -> Summary:
        """The verdict with everything it rests on."""
        return self.result.summary

    @property
    def name_of(self) -> Callable[[Config], str]:
        """What calls the configurations by the knobs they change."""
        return self.result.name_of

    @cached_property
    def sections(self) -> StudyView:
        """The same for the sections that a report has too; links lead to the pages of trials."""
        return StudyView(
            result=self.result,
            invalid=[trial for trial in self.all_trials if trial.number in self.invalid],
            predictions=self.predictions,
            unseen=self.unseen,
            links={number: f"{self.url}/trials/{number}" for group in self.summary.failures for number in group.trials[:MOST_NUMBERS]},
            most_lines=MOST_LINES,
            machine=self.about.machine,
        )

    @cached_property
    def predictions(self) -> Predictions | None:
        """What a simulator predicted: with each trial, or as the last report of the study says; None without."""
        task, first = self.summary.task, dict[Config, Trial]()
        for trial in self.valid_trials:
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
        return Ledger.of(self.valid_trials).counted

    @cached_property
    def used(self) -> float:
        """How much of the tightest bound is used, 0 to 1."""
        return min(1.0, used_share(self.budget, self.valid_trials, self.summary.spent.wall_s))

    @cached_property
    def unseen(self) -> UnseenWindows | None:
        """How it stands in windows that it does not judge on, as the last report of the study says; None without."""
        try:
            return UnseenWindows.from_json(self._report["unseen_windows"])
        except (ValueError, TypeError, KeyError, AttributeError):
            return None

    def _reported(self) -> Predictions | None:
        try:
            predicted = self._report["predicted"]
            names = ("trial", "name", "predicted", "measured", "status")
            rows = [PredictedTrial(**{name: row[name] for name in names}) for row in predicted["rows"]]
            return Predictions(simulator=str(predicted["simulator"]), metric=self.record.task.objective.metric, rows=tuple(rows))
        except (ValueError, TypeError, KeyError, AttributeError):
            return None  # one of an earlier version

    @cached_property
    def _report(self) -> Mapping[str, Any]:
        """The last report of the study; empty where there is none yet."""
        try:
            data: Any = json.loads((self.folder.path / "report.json").read_text(encoding="utf-8")) if self.folder else {}
        except (OSError, ValueError):
            return {}
        return data if isinstance(data, Mapping) else {}


__all__ = ["MOST_LINES", "LiveView"]
