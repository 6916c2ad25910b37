"""Which answers a step learns from: all of them, until there are too many."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest

from autoscout.learning.answers import Answer
from autoscout.search.hybrid import tuning


def bounded(answers: Sequence[Answer]) -> Sequence[Answer]:
    """At most `tuning.MAX_ANSWERS` answers, oldest first, as the set of all answers alone decides.

    The best, by each goal in turn, say where the optimum is; the oldest, how often something fails that was not chosen to work; the newest,
    what the search is at. The others are those with the smallest keys: keys are hashes, so this is a random sample, and it stays nearly the
    same from step to step, so that fitted hyperparameters can be used again.

    Args:
        answers: All there are, oldest first.
    """
    if len(answers) <= tuning.MAX_ANSWERS:
        return answers
    rows = range(len(answers))
    chosen = {*rows[: tuning.EARLY_TRIALS], *rows[-tuning.RECENT_ANSWERS :]}
    worked = [row for row in rows if not answers[row].failed]
    goals = max((len(answers[row].losses) for row in worked), default=1)
    for goal in range(goals):
        chosen.update(nsmallest(tuning.BEST_ANSWERS // goals, worked, key=lambda row: _rank(answers[row], goal)))
    rest = (row for row in rows if row not in chosen)
    chosen.update(nsmallest(tuning.MAX_ANSWERS - len(chosen), rest, key=lambda row: answers[row].key))
    return [answers[row] for row in sorted(chosen)]


def _rank(answer: Answer, goal: int) -> tuple[bool, float, str]:
    """Measured before simulated, then by the loss."""
    loss = answer.losses[goal] if goal < len(answer.losses) else answer.loss
    return not answer.measured, loss, answer.key
