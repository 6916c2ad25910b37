"""Trials as simulators learn from them, and those that were measured for them before the search."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from autoscout.core.origin import By
from autoscout.core.trial import Fidelity, Trial


def as_measured(trials: Iterable[Trial]) -> list[Trial]:
    """Trials of the system's own answers: for simulators those of a virtual cluster are measurements too."""
    return [replace(trial, measurement=replace(trial.measurement, fidelity=Fidelity.MEASURED)) for trial in trials]


def profile_of(trials: Sequence[Trial]) -> list[Trial]:
    """The trials of the profiling phase, in an order that does not depend on when they arrived."""
    by_config = {
        trial.config: trial for trial in reversed(trials) if trial.proposal.origin.by == By.PROFILING and trial.proposal.repeat == 0
    }
    return as_measured(sorted(by_config.values(), key=lambda trial: trial.config.key))


__all__ = ["as_measured", "profile_of"]
