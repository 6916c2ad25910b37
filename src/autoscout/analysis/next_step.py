"""What would decide a study that is not decided: how many measurements more, how long they take, and the command that makes them."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from autoscout.analysis.gain import MIN_PAIRS
from autoscout.analysis.verdict import Decision, Verdict
from autoscout.common.text import plural, show_duration
from autoscout.core.origin import Phase
from autoscout.core.task import Budget
from autoscout.core.trial import Trial

SPARE = 3
"""Measurements of a time budget beyond those that are needed: the search may take some while it sees that there is time for the final."""
SLACK = 1.3
"""How much longer than those so far the measurements of a time budget may take."""
USUAL_ROUNDS = 5
"""Rounds of a final to ask for where there was none."""
MORE_TIME = 2
"""How many times the budget that was too short for a single measurement."""
MORE_ROUNDS = 2
"""How many times the rounds there were, where these could not tell."""


@dataclass(frozen=True, kw_only=True)
class NextStep:
    """What would decide.

    Attributes:
        measurements: How many more, at least.
        seconds: About how long they take one after another; None where nothing has run yet.
        flags: Of `autoscout resume`, behind the folder.
        folder: Of the study; empty where nobody knows it.
    """

    measurements: int
    seconds: float | None
    flags: str
    folder: str = ""

    @property
    def command(self) -> str:
        """What to type."""
        return f"autoscout resume {shlex.quote(self.folder) if self.folder else 'DIR'}{self.flags}"

    def __str__(self) -> str:
        time = f", about {show_duration(self.seconds)}" if self.seconds is not None else ""
        return f"a verdict needs at least {plural(self.measurements, 'more measurement')}{time}: {self.command}"

    def to_json(self) -> dict[str, Any]:
        return {"measurements": self.measurements, "seconds": self.seconds, "command": self.command}


def next_step(decision: Decision, trials: Sequence[Trial], budget: Budget, spent_s: float, folder: str = "") -> NextStep | None:
    """What would decide; None where it is decided, or where there is nobody to compare with and nothing is known.

    Args:
        decision: As it stands.
        trials: Those that count.
        budget: Of the study so far.
        spent_s: Seconds it has run.
        folder: Where it lives.
    """
    if decision.verdict is not Verdict.UNDECIDED:
        return None
    rounds, measurements = _missing(decision)
    final = [trial for trial in trials if trial.proposal.origin.phase is Phase.FINAL and trial.ok]
    costs_s = [max(trial.measurement.cost_s, trial.finished_s - trial.started_s) for trial in final or trials if trial.ok]
    each_s = float(median(costs_s)) if costs_s else None
    searched = sum(trial.proposal.origin.phase is Phase.SEARCH and not trial.proposal.again for trial in trials)
    if not final and budget.trials is not None and searched >= budget.trials:
        rounds = USUAL_ROUNDS
    flags = f" --rounds {rounds}" if rounds > MIN_PAIRS else ""
    more_s = 0.0 if each_s is None else each_s * (measurements + SPARE) * SLACK
    cost_s = sum(trial.measurement.cost_s for trial in trials)
    for flag, bound_s, used_s in (("--budget", budget.wall_s, spent_s), ("--max-cost", budget.cost_s, cost_s)):
        if bound_s is not None:
            flags += f" {flag} {_time(MORE_TIME * bound_s if each_s is None else max(bound_s, used_s + more_s))}"
    return NextStep(measurements=measurements, seconds=None if each_s is None else each_s * measurements, flags=flags, folder=folder)


def _missing(decision: Decision) -> tuple[int, int]:
    """Rounds of the final that a verdict needs in all, and how many measurements are missing."""
    pairs = decision.gain.pairs
    contenders = max(1, sum(bool(finalist.side.rounds) for finalist in decision.finalists))
    if pairs >= MIN_PAIRS:
        return MORE_ROUNDS * pairs, (MORE_ROUNDS - 1) * pairs * (contenders + 1)
    first = (decision.reference is None) + (decision.best is None)
    sides = 2 + (decision.baseline_gain is not None)
    return MIN_PAIRS, first + sides * (MIN_PAIRS - pairs)


def _time(duration_s: float) -> str:
    """As the command line takes it, rounded up."""
    if duration_s < 90:
        return f"{max(1, math.ceil(duration_s))}s"
    return f"{math.ceil(duration_s / 60)}m"


__all__ = ["NextStep", "next_step"]
