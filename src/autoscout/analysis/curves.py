"""How a study went: the value of each trial and the best so far, over trials, time and cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from autoscout.common.draw import thin
from autoscout.core.origin import Phase
from autoscout.core.task import Task
from autoscout.core.trial import Fidelity, Trial

MOST_POINTS = 2_000
"""Trials of a convergence curve that are told one by one."""


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """One trial on the convergence curve.

    Attributes:
        number: The trial's number.
        elapsed_s: Seconds during which the study ran, up to the end of this trial.
        spent_s: Measured cost of all trials up to this one.
        value: What it measured; None for a failure.
        best: The best value so far at this trial's fidelity that keeps all limits; None before the first.
        improved: Whether this trial set it.
        fidelity: Who answered.
        status: How it fared.
        phase: "search", "simplify" or "final", from the trial's origin.
        allowed: Whether it ran and kept all limits.
    """

    number: int
    elapsed_s: float
    spent_s: float
    value: float | None
    best: float | None
    improved: bool
    fidelity: str
    status: str
    phase: str
    allowed: bool

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def ordered(trials: Iterable[Trial]) -> list[Trial]:
    """Trials as they happened; predictions of a searcher's own model are left out: they are not results."""
    answers = [trial for trial in trials if trial.measurement.fidelity is not Fidelity.PREDICTED]
    if all(one.number < other.number for one, other in pairwise(answers)):
        return answers  # as a store has them
    return sorted(answers, key=lambda trial: (trial.number, trial.finished_s))


def curve(task: Task, trials: Sequence[Trial]) -> tuple[CurvePoint, ...]:
    """The convergence curve of a study, one point per trial."""
    best: dict[Fidelity, float] = {}
    points: list[CurvePoint] = []
    spent_s = 0.0
    steps = ordered(trials)
    elapsed_s = busy_moments(steps)
    for trial in steps:
        spent_s += trial.measurement.cost_s
        fidelity = trial.measurement.fidelity
        value = task.objective.value(trial.measurement)
        allowed = task.objective.loss(trial.measurement) != float("inf")
        looking = trial.proposal.origin.phase is Phase.SEARCH  # what follows judges what the search has found; it finds nothing itself
        improved = looking and allowed and value is not None and (fidelity not in best or task.objective.better(value, best[fidelity]))
        if improved and value is not None:
            best[fidelity] = value
        points.append(
            CurvePoint(
                number=trial.number,
                elapsed_s=elapsed_s[trial.finished_s],
                spent_s=spent_s,
                value=value,
                best=best.get(fidelity),
                improved=improved,
                fidelity=fidelity.label,
                status=trial.measurement.status.value,
                phase=trial.proposal.origin.phase.value,
                allowed=allowed,
            )
        )
    return tuple(points)


def shown_points(points: Sequence[CurvePoint]) -> list[int]:
    """Indices of the points that a document holds: all, or of very many an even choice with those that improved on what was there."""
    return thin(len(points), MOST_POINTS, (index for index, point in enumerate(points) if point.improved))


def busy_moments(trials: Sequence[Trial]) -> dict[float, float]:
    """Start or end of a trial -> seconds up to then during which at least one trial ran."""
    steps = sorted(
        [(trial.started_s, 1) for trial in trials] + [(trial.finished_s, -1) for trial in trials], key=lambda step: (step[0], -step[1])
    )
    moments: dict[float, float] = {}
    running, total_s, before_s = 0, 0.0, 0.0
    for moment_s, change in steps:
        total_s += moment_s - before_s if running else 0.0
        running += change
        before_s = moment_s
        moments[moment_s] = total_s
    return moments


def busy_s(trials: Sequence[Trial]) -> float:
    """Seconds during which at least one of the trials ran: pauses of a resumed study do not count."""
    return max(busy_moments(trials).values(), default=0.0)
