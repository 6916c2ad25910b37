"""Order by Slurm's multifactor priority: age, fair share, size, quality of service."""

from __future__ import annotations

import numpy as np

from autoscout.sched.kernel.arrays import Index, Table, Vector
from autoscout.sched.kernel.columns import CAPACITY, GPUS, PENDING, RANK_KEY, RUNNING, STATUS, SUBMIT, USER
from autoscout.sched.kernel.jit import jit, rank, wake
from autoscout.sched.kernel.ranked import COMPETES

# Places of the parameters.
AGE_WEIGHT, FAIR_WEIGHT, SIZE_WEIGHT, MAX_AGE_S, HALF_LIFE_S, FAVOUR_SMALL, QOS_WEIGHT = 0, 1, 2, 3, 4, 5, 6

# Places of the memory: two numbers, then decayed GPU-seconds and GPUs in use, per user.
LAST, USERS, TABLES = 0, 1, 2


@jit
def _account(now: float, params: Vector, memory: Vector) -> float:
    """Let past usage decay, add what ran since the last decision, return the sum over users."""
    users = int(memory[USERS])
    passed = now - memory[LAST]
    decay = 0.5 ** (passed / params[HALF_LIFE_S]) if params[HALF_LIFE_S] > 0 else 1.0
    total = 0.0
    for user in range(users):
        memory[TABLES + user] = memory[TABLES + user] * decay + memory[TABLES + users + user] * passed
        total += memory[TABLES + user]
    memory[LAST] = now
    return total


@rank
def rank_by_factors(
    now: float,
    active: Index,
    n: int,
    job: Table,
    cluster: Vector,
    params: Vector,
    memory: Vector,
    key: Vector,
    tie: Vector,
    flag: Vector,
) -> None:
    """The highest weighted sum of factors, each between 0 and 1, first."""
    users = memory[USERS]
    total = _account(now, params, memory)
    for i in range(n):
        j = active[i]
        flag[i] = COMPETES
        tie[i] = float(j)
        if job[STATUS, j] != PENDING:
            key[i] = 0.0
            continue
        age = min(1.0, (now - job[SUBMIT, j]) / params[MAX_AGE_S])
        used = memory[TABLES + int(job[USER, j])] / total if total > 0 else 0.0
        size = job[GPUS, j] / cluster[CAPACITY]
        if params[FAVOUR_SMALL] > 0:
            size = 1.0 - size
        key[i] = -(
            params[AGE_WEIGHT] * age
            + params[FAIR_WEIGHT] * 0.5 ** (used * users)
            + params[SIZE_WEIGHT] * size
            + params[QOS_WEIGHT] * job[RANK_KEY, j]
        )


@wake
def note_users(now: float, active: Index, n: int, job: Table, cluster: Vector, params: Vector, memory: Vector) -> float:
    """Remember who runs on how many GPUs until the next decision."""
    users = int(memory[USERS])
    for user in range(users):
        memory[TABLES + users + user] = 0.0
    for i in range(n):
        j = active[i]
        if job[STATUS, j] == RUNNING:
            memory[TABLES + users + int(job[USER, j])] += job[GPUS, j]
    return np.inf
