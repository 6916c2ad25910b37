"""Order by Slurm's multifactor priority: age, fair share, size, quality of service."""

from __future__ import annotations

import numpy as np

from autosched.kernel.jit import jit, rank, wake
from autosched.kernel.records import PENDING, RUNNING, PolicyView, Vector

# Places of the parameters.
AGE_WEIGHT, FAIR_WEIGHT, SIZE_WEIGHT, MAX_AGE_S, HALF_LIFE_S, FAVOUR_SMALL, QOS_WEIGHT = 0, 1, 2, 3, 4, 5, 6

# Places of the memory: one number, then two per user, decayed GPU-seconds and GPUs in use; users who come later are added at the end.
LAST, USED, IN_USE = 0, 1, 2


@jit
def _account(now: float, params: Vector, memory: Vector) -> float:
    """Let past usage decay, add what ran since the last decision, return the sum over users."""
    passed = now - memory[LAST]
    decay = 0.5 ** (passed / params[HALF_LIFE_S]) if params[HALF_LIFE_S] > 0 else 1.0
    total = 0.0
    for index in range(1, len(memory), 2):
        memory[index] = memory[index] * decay + memory[index + 1] * passed
        total += memory[index]
    memory[LAST] = now
    return total


@rank
def rank_by_factors(view: PolicyView) -> None:
    """The highest weighted sum of factors, each between 0 and 1, first."""
    job, active, key, params, memory = view.job, view.active, view.key, view.params, view.memory
    users = (len(memory) - 1) // 2
    total = _account(view.now, params, memory)
    for i in range(len(active)):
        j = active[i]
        if job[j].status != PENDING:
            key[i] = 0.0
            continue
        age = min(1.0, (view.now - job[j].submit_s) / params[MAX_AGE_S])
        used = memory[USED + 2 * int(job[j].user)] / total if total > 0 else 0.0
        size = job[j].gpus / view.cluster.capacity
        if params[FAVOUR_SMALL] > 0:
            size = 1.0 - size
        key[i] = -(
            params[AGE_WEIGHT] * age
            + params[FAIR_WEIGHT] * 0.5 ** (used * users)
            + params[SIZE_WEIGHT] * size
            + params[QOS_WEIGHT] * job[j].rank_key
        )


@wake
def note_users(view: PolicyView) -> float:
    """Remember who runs on how many GPUs until the next decision."""
    job, memory = view.job, view.memory
    memory[IN_USE::2] = 0.0
    for j in view.active:
        if job[j].status == RUNNING:
            memory[IN_USE + 2 * int(job[j].user)] += job[j].gpus
    return np.inf
