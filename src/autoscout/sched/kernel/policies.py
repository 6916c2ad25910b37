"""Ready-made order and wake functions."""

from __future__ import annotations

import numpy as np

from autoscout.sched.kernel.arrays import Index, Table, Vector
from autoscout.sched.kernel.columns import RANK_KEY
from autoscout.sched.kernel.jit import rank, wake
from autoscout.sched.kernel.ranked import COMPETES


@rank
def by_fixed_key(
    now: float, active: Index, n: int, job: Table, cluster: Vector, params: Vector, memory: Vector, key: Vector, tie: Vector, flag: Vector
) -> None:
    """The order stands in the job table."""
    for i in range(n):
        key[i] = job[RANK_KEY, active[i]]
        tie[i] = active[i]
        flag[i] = COMPETES


@wake
def never(now: float, active: Index, n: int, job: Table, cluster: Vector, params: Vector, memory: Vector) -> float:
    """The order changes only with events."""
    return np.inf
