"""What to try when the model keeps expecting gains that do not come."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autoscout.core.trial import Proposal
from autoscout.learning.answers import Answer
from autoscout.search.hybrid import tuning
from autoscout.search.hybrid.state import SearchState
from autoscout.space.encode import Codes, Floats


def propose(state: SearchState) -> Proposal | None:
    """Every now and then after a row of answers that were no better: a candidate whose structure was seldom tried.

    A model that is wrong about a structure it has hardly seen keeps refining the one it began with. So what a candidate is worth is
    divided by the trials of its structure. Only candidates that are likely to work: a structure that hardly works is seldom tried for a
    reason.
    """
    turn = (state.trials + len(state.waiting)) % tuning.STALLED_INTERVAL == 0  # trials, not steps: known answers would not end it
    if not turn or fruitless(state.answers, state.front) < tuning.STALLED_AFTER:
        return None
    tried = state.encoder.rows([*(answer.config for answer in state.answers), *state.waiting])
    safe = np.flatnonzero(state.chance >= tuning.MIN_SUCCESS_CHANCE)
    shares = seldom_tried(state.rows.codes[safe], tried.codes, state.encoder.sparse)
    if shares is None:
        return None
    return state.proposal(state.weighed[0][int(safe[np.argmax(state.values[safe] * shares)])], "stalled")


def fruitless(answers: Sequence[Answer], front: Sequence[Answer] | None = None) -> int:
    """How many answers came after the best one, or the newest of the front; 0 while nothing worked."""
    if front:
        newest = max(answer.age[0] for answer in front)
        return sum(answer.age[0] > newest for answer in answers)
    worked = [answer for answer in answers if not answer.failed]
    if not worked:
        return 0
    best = min((not answer.measured, answer.loss, answer.age[0]) for answer in worked)[-1]
    return sum(answer.age[0] > best for answer in answers)


def seldom_tried(codes: Codes, tried: Codes, sparse: NDArray[np.bool_]) -> Floats | None:
    """1 / (1 + trials of its structure) for each candidate; None if all candidates have the same structure.

    Args:
        codes: Candidates.
        tried: Trials, those under way too.
        sparse: The knobs that make up a structure.
    """
    _, which = np.unique(np.concatenate([codes[:, sparse], tried[:, sparse]]), axis=0, return_inverse=True)
    which = which.ravel()
    if not len(codes) or (which[: len(codes)] == which[0]).all():
        return None
    visits = np.bincount(which[len(codes) :], minlength=int(which.max()) + 1)
    return np.asarray(1.0 / (1.0 + visits[which[: len(codes)]]), dtype=np.float64)
