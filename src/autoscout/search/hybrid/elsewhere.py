"""Where to look once the model has promised much and found nothing for a while."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autoscout.search.hybrid.encode import Codes, Floats
from autoscout.search.hybrid.ledger import Answer

STALLED, TURNS = 10, 3
"""After so many steps without a better configuration, every so many steps look elsewhere."""
WIDER = 3.0
"""Times the spread that the model claims: so many of its promises came to nothing."""


def looks_elsewhere(answers: Sequence[Answer], step: int) -> bool:
    """Whether this step does.

    A model that is wrong about a structure it has hardly seen goes on refining the one it began with, and promises a little every time.

    Args:
        answers: What is known.
        step: Steps taken.
    """
    worked = [answer for answer in answers if not answer.failed]
    if not worked or step % TURNS:
        return False
    found = min(worked, key=lambda answer: (answer.loss, answer.key)).origin.get("round")
    return step - (found if isinstance(found, int) else 0) >= STALLED


def seldom_tried(codes: Codes, known: Codes, sparse: NDArray[np.bool_]) -> Floats:
    """A share for each candidate that falls with the trials its structure has had, as visits count in a tree.

    Args:
        codes: Candidates.
        known: Trials.
        sparse: The knobs that make up a structure.
    """
    _, which = np.unique(np.concatenate([codes[:, sparse], known[:, sparse]]), axis=0, return_inverse=True)
    which = which.ravel()
    visits = np.bincount(which[len(codes) :], minlength=int(which.max(initial=0)) + 1)
    return np.asarray(1.0 / (1.0 + visits[which[: len(codes)]]), dtype=np.float64)
