"""The default is measured as well as the winner: twice at the start, and again spread over the search.

A single measurement of the default may be slow by chance, and then every "so far" flatters. These repeats are the search's, but a
budget of trials counts configurations, and the default is one of them. Only a study with a final does this: without one, or where answers
are exact, nobody compares beyond noise.
"""

from __future__ import annotations

from collections.abc import Sequence

from autoscout.core.config import Config
from autoscout.core.origin import By, Origin
from autoscout.core.trial import DEFAULT_AGAIN, Proposal, Trial

DUE = (0.0, 1 / 3, 2 / 3)
"""Share of the budget, of whatever is bounded, after which the default is measured again."""


def repeats(baseline: Config, trials: Sequence[Trial], used: float) -> list[Proposal]:
    """Further measurements of the default that are due; none while it has not run or when it failed.

    Args:
        baseline: The default with the pinned knobs.
        trials: Everything stored.
        used: Share of the budget.
    """
    if not any(trial.ok for trial in trials if trial.config == baseline):
        return []
    due = sum(used >= mark for mark in DUE)
    return [Proposal(config=baseline, origin=Origin(by=By.DEFAULT), repeat=DEFAULT_AGAIN - number) for number in range(due)]


__all__ = ["repeats"]
