"""Which trials a page lists: filtered, sorted, a hundred at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from autoscout.core.errors import ConfigError, Fault
from autoscout.core.trial import Status, Trial
from autoscout.web.live import LiveView

SIZE = 100
"""Trials on one page."""
FAILED = "failed"
"""As a status: every kind of failure."""


@dataclass(frozen=True, kw_only=True)
class TrialQuery:
    """What to list.

    Attributes:
        page: From 1.
        sort: `number`, `cost_s`, `status`, or a metric or knob of the study.
        down: Largest first.
        status: Only trials that ended so; `failed` for every failure; empty for all.
        text: Only trials whose name, status or reason contains all of these words.
    """

    page: int = 1
    sort: str = "number"
    down: bool = True
    status: str = ""
    text: str = ""

    def __post_init__(self) -> None:
        statuses = ("", FAILED, *(status.value for status in Status))
        if self.status not in statuses:
            raise ConfigError(
                Fault(where="trials", field="status", value=repr(self.status), rule=f"must be one of: {', '.join(statuses[1:])}")
            )

    def link(self, **changes: Any) -> str:
        """The query of a URL for the same list with something changed; what is usual is left out."""
        other, usual = replace(self, **changes), TrialQuery()
        fields = {name: value for name, value in vars(other).items() if value != getattr(usual, name)}
        return "?" + urlencode({name: int(value) if isinstance(value, bool) else value for name, value in fields.items()})


@dataclass(frozen=True, kw_only=True)
class TrialList:
    """A page of a list."""

    trials: tuple[Trial, ...]
    count: int  # on all pages
    page: int
    pages: int


def list_trials(view: LiveView, query: TrialQuery) -> TrialList:
    """The trials that a query asks for, invalid ones too."""
    trials = view.all_trials
    if query.status:
        trials = [trial for trial in trials if _has_status(trial, query.status)]
    if words := query.text.lower().split():
        trials = [trial for trial in trials if all(word in _text(view, trial) for word in words)]
    if query.sort != "number" or query.down:
        trials = _sorted(trials, query.sort, query.down)
    pages = max(1, math.ceil(len(trials) / SIZE))
    page = min(max(1, query.page), pages)
    return TrialList(trials=tuple(trials[(page - 1) * SIZE : page * SIZE]), count=len(trials), page=page, pages=pages)


def _has_status(trial: Trial, status: str) -> bool:
    return trial.measurement.status.failed if status == FAILED else trial.measurement.status.value == status


def _text(view: LiveView, trial: Trial) -> str:
    answer = trial.measurement
    return f"#{trial.number} {view.name_of(trial.config)} {answer.status.value} {trial.proposal.origin.phase.value} {answer.reason}".lower()


def _sorted(trials: list[Trial], sort: str, down: bool) -> list[Trial]:
    """Those without a value last, whichever way; numbers before words."""
    key = _PLAIN.get(sort) or (lambda trial: _setting(trial, sort))
    keyed = [(key(trial), index) for index, trial in enumerate(trials)]
    numbers = sorted(((value, index) for value, index in keyed if isinstance(value, (int, float))), reverse=down)
    words = sorted(((value, index) for value, index in keyed if isinstance(value, str)), reverse=down)
    gone = [(None, index) for value, index in keyed if value is None]
    return [trials[index] for _, index in ([*words, *numbers] if down else [*numbers, *words])] + [trials[index] for _, index in gone]


_PLAIN: Mapping[str, Callable[[Trial], Any]] = {
    "number": lambda trial: trial.number,
    "cost_s": lambda trial: trial.measurement.cost_s,
    "status": lambda trial: trial.measurement.status.value,
    "phase": lambda trial: trial.proposal.origin.phase.value,
}


def _setting(trial: Trial, name: str) -> Any:
    """A metric or a knob of a trial; None where it has neither."""
    if name in trial.measurement.metrics:
        return trial.measurement.metrics[name]
    return trial.config.get(name)


__all__ = ["FAILED", "SIZE", "TrialList", "TrialQuery", "list_trials"]
