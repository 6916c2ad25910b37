"""Ready-made order and wake functions."""

from __future__ import annotations

import numpy as np

from autosched.kernel.jit import rank, wake
from autosched.kernel.records import PolicyView


@rank
def by_fixed_key(view: PolicyView) -> None:
    """The order is given by `rank_key`."""
    job, active, key = view.job, view.active, view.key
    for i in range(len(active)):
        key[i] = job[active[i]].rank_key


@wake
def never(view: PolicyView) -> float:
    """The order changes only with events."""
    return np.inf
