"""How much of a budget the stored trials have used, and when a search must end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from itertools import islice

from autoscout.common.text import show_duration
from autoscout.core.task import Budget
from autoscout.core.trial import Status, Trial
from autoscout.study.ledger import Ledger

SEARCHED = 3
"""The time of this many trials is the search's, however long the final: the default, another one, and what starting them takes."""

REFUSED = 3
"""Configurations, the default among them: refused in the same words, it is the command or the model that is wrong, not the settings."""


ROUNDING = 1e-6
"""Of a count of trials: so much more than a whole number is none."""


class Stop(StrEnum):
    """Why a study ended."""

    TRIALS = "trial budget used"
    WALL = "wall-clock budget used"
    COST = "measurement budget used"
    STALE = "nothing improved for long enough"
    FAILURES = "too many failures in a row"
    REFUSED = "every configuration was refused for the same reason"
    EXHAUSTED = "nothing left to propose"
    INTERRUPTED = "interrupted"


def failures_in_a_row(trials: Sequence[Trial], earlier: int = 0) -> int:
    """How many of the newest trials failed, one after another; what a simulator expects to fail breaks nothing and is passed over.

    Args:
        trials: Everything stored, oldest first.
        earlier: How many of them do not count.
    """
    top = Ledger.of(trials).top
    run = 0
    for number in range(len(trials) - 1, earlier - 1, -1):
        trial = trials[number]
        if trial.measurement.fidelity is not top:
            continue
        if not trial.measurement.status.failed:
            break
        run += 1
    return run


def all_refused(trials: Sequence[Trial], earlier: int = 0) -> bool:
    """Whether nothing but one and the same refusal has come from several configurations.

    Args:
        trials: Everything stored, oldest first.
        earlier: How many of them do not count.
    """
    reason = trials[earlier].measurement.reason if len(trials) > earlier else ""
    if not reason:
        return False
    new = islice(trials, earlier, None)
    if any(trial.measurement.status is not Status.INVALID or trial.measurement.reason != reason for trial in new):
        return False
    return len({trial.config for trial in islice(trials, earlier, None)}) >= REFUSED


def counted_s(wall_s: float, trials: Sequence[Trial], workers: int) -> float:
    """The seconds of a study that its budget counts: those in which extensions were compiled, which happens once, are left out."""
    return max(0.0, wall_s - Ledger.of(trials).compiled_s / workers)


def out_of_time(
    budget: Budget, trials: Sequence[Trial], wall_s: float, workers: int, soon: int = 1, later: int = 0, least: int = 0
) -> Stop | None:
    """Which bound on time more trials would break, judged by the trials so far; see `Ledger.mean_s`.

    Args:
        budget: The bounds.
        trials: Everything stored.
        wall_s: Seconds the study has run, earlier runs included.
        workers: How many trials run at once.
        soon: Trials to be started now.
        later: Trials to keep time back for, at most half of the budget.
        least: How many of them cannot be done without: time for these is kept back even beyond half, after `SEARCHED`.
    """
    ledger = Ledger.of(trials)
    mean_s = ledger.mean_s
    if budget.wall_s is not None:
        kept_s = _kept_s(budget.wall_s, mean_s / workers, later, least)
        if wall_s + soon * mean_s / workers + kept_s >= budget.wall_s:
            return Stop.WALL
    if budget.cost_s is not None:
        kept_s = _kept_s(budget.cost_s, mean_s, later, least)
        if ledger.cost_s + (soon - 1) * mean_s + kept_s >= budget.cost_s:
            return Stop.COST
    return None


def _kept_s(bound_s: float, trial_s: float, later: int, least: int) -> float:
    kept_s = max(0.0, min(later * trial_s, max(bound_s / 2, least * trial_s), bound_s - SEARCHED * trial_s))
    return kept_s if kept_s >= min(least, 2) * trial_s else 0.0  # half a pair compares nothing: better to search


def in_pairs(count: int, defaults: Sequence[Trial], trials: Sequence[Trial]) -> int:
    """How many measurements of usual length take as long as `count` of a final, where every other one may be of the default.

    Args:
        count: Trials of the final.
        defaults: Measurements of the default; it is often slower than what a search finds, and slower still where a machine becomes busy.
        trials: Everything stored.
    """
    usual_s = Ledger.of(trials).mean_s
    costs_s = [trial.measurement.usual_s for trial in defaults if trial.ok]
    if not costs_s or not usual_s:
        return count
    default_s = sum(costs_s) / len(costs_s)
    return math.ceil(count * max(1.0, (default_s / usual_s + 1) / 2) - ROUNDING)


def ending(stop: Stop, budget: Budget, trials: Sequence[Trial], wall_s: float, *, rounds: int = 0, is_cut_off: bool = False) -> str:
    """Why a study ended, in a line for people: for a budget of time also what was left of it, and what that was too short for.

    Args:
        stop: Why, in a word.
        budget: The bounds.
        trials: Everything stored.
        wall_s: Seconds the study has run, earlier runs included.
        rounds: Rounds of the final that are still to be measured.
        is_cut_off: Whether a measurement was given up: by the budget, if nothing of that is left.
    """
    bound_s = {Stop.WALL: budget.wall_s, Stop.COST: budget.cost_s}.get(stop)
    if bound_s is None:
        return stop.value
    used_s = wall_s if stop is Stop.WALL else Ledger.of(trials).cost_s
    left_s, one_s = bound_s - used_s, Ledger.of(trials).mean_s
    left = f"{show_duration(left_s)} left"
    if is_cut_off and left_s <= 0:
        return f"{stop.value} in the middle of a measurement: that counts for nothing, and a larger budget takes it again"
    if left_s <= 0 or not one_s:
        return stop.value
    if left_s < one_s:
        return f"not enough left for another measurement (one takes {show_duration(one_s)}, {left})"
    if rounds:
        return f"not enough left for another round of the final (a measurement takes {show_duration(one_s)}, {left})"
    return f"search and final are done ({left} of {show_duration(bound_s)})"


def used_share(budget: Budget, trials: Sequence[Trial], wall_s: float) -> float:
    """How much of the tightest bound is used, 0 to 1; 0 without any.

    Args:
        budget: The bounds.
        trials: Everything stored.
        wall_s: Seconds the study has run, earlier runs included.
    """
    ledger = Ledger.of(trials)
    used = ((ledger.counted, budget.trials), (wall_s, budget.wall_s), (ledger.cost_s, budget.cost_s))
    return max((float(amount / bound) for amount, bound in used if bound), default=0.0)


def over(budget: Budget, trials: Sequence[Trial], wall_s: float, later: int, workers: int, earlier: int = 0, least: int = 0) -> Stop | None:
    """Which bound the search has reached, if any. Time for what comes after it is kept back.

    Args:
        budget: The bounds.
        trials: Everything stored, oldest first.
        wall_s: Seconds the study has run, earlier runs included.
        later: Trials after the search, of simplifying and of the final.
        workers: How many trials run at once.
        earlier: How many of the trials stem from earlier runs; what failed then may have been fixed since.
        least: How many of the later trials cannot be done without.
    """
    trials = Ledger.of(trials)
    if budget.trials is not None and trials.counted >= budget.trials:
        return Stop.TRIALS
    if budget.failures is not None and failures_in_a_row(trials, earlier) >= budget.failures:
        return Stop.FAILURES
    if all_refused(trials, earlier):
        return Stop.REFUSED
    return out_of_time(budget, trials, wall_s, workers, later=later, least=least)
