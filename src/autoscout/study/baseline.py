"""The default is measured as well as the winner: twice at the start, and again spread over the search.

A single measurement of the default may be slow by chance, and then every "so far" flatters. These repeats are the search's, but a
budget of trials counts configurations, and the default is one of them. Only a study with a final does this: without one, or where answers
are exact, nobody compares beyond noise. Where one measurement takes much of the time there is, the search needs it more: the final
measures the default again anyway.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from autoscout.core.config import Config
from autoscout.core.origin import By, Origin
from autoscout.core.task import Budget
from autoscout.core.trial import DEFAULT_AGAIN, Proposal, Trial

DUE = (0.0, 1 / 3, 2 / 3)
"""Share of the budget, of whatever is bounded, after which the default is measured again."""

MAX_COST_SHARE = 0.05
"""Share of the time of a budget above which a measurement is too expensive to be repeated before the final."""


def repeats(baseline: Config, trials: Sequence[Trial], used: float, budget: Budget) -> list[Proposal]:
    """Further measurements of the default that are due; none while it has not run, when it failed, or where it takes too long.

    Args:
        baseline: The default with the pinned knobs.
        trials: Everything stored.
        used: Share of the budget.
        budget: Its bounds on time say what takes too long.
    """
    costs_s = [trial.measurement.cost_s for trial in trials if trial.config == baseline and trial.ok]
    time_s = min((bound for bound in (budget.wall_s, budget.cost_s) if bound is not None), default=math.inf)
    if not costs_s or costs_s[0] > MAX_COST_SHARE * time_s:
        return []
    due = sum(used >= mark for mark in DUE)
    return [Proposal(config=baseline, origin=Origin(by=By.DEFAULT), repeat=DEFAULT_AGAIN - number) for number in range(due)]


__all__ = ["repeats"]
