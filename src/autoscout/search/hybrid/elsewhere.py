"""Where to look once the model has promised much and found nothing for a while."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autoscout.search.hybrid.ledger import Answer
from autoscout.space.encode import Codes, Floats

STALLED, TURNS = 9, 3
"""After so many answers that were no better, every so many steps look elsewhere."""
DOUBTED = 40
"""And after so many while the model is doubted: what is next to good configurations is worth more steps, but not all that are left."""
WIDER = 3.0
"""Times the spread that the model claims: so many of its promises came to nothing."""


def fruitless(answers: Sequence[Answer]) -> int:
    """How many answers came after the best one; 0 while nothing worked.

    A model that is wrong about a structure it has hardly seen goes on refining the one it began with, and promises a little every time.
    """
    worked = [answer for answer in answers if not answer.failed]
    if not worked:
        return 0
    best = min((not answer.measured, answer.loss, _round(answer)) for answer in worked)[-1]
    return sum(_round(answer) > best for answer in answers)


def _round(answer: Answer) -> int:
    """When it was proposed; what the search did not propose was there from the start."""
    found = answer.origin.get("round")
    return found if isinstance(found, int) else -1


def seldom_tried(codes: Codes, tried: Codes, sparse: NDArray[np.bool_]) -> Floats | None:
    """A share for each candidate that falls with the trials its structure has had, as visits count in a tree; None if all have the same.

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
