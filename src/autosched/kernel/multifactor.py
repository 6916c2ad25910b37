"""Order by Slurm's multifactor priority: age, fair share, size, and what a job's quality of service and partition add (its key).

Priorities are whole numbers, and are calculated anew only now and then (`review_s`); a job that came since has those of its arrival. Size
counts nodes and GPUs alike. Fair share is the default algorithm since 19.05 (Fair Tree) for users of one account with equal shares: their
place in the order of what they used, so how much more than others somebody used does not matter.
"""

from __future__ import annotations

import numpy as np

from autosched.kernel.jit import jit, rank, wake
from autosched.kernel.records import PENDING, RUNNING, PolicyView, Vector

# Places of the parameters.
AGE_WEIGHT, FAIR_WEIGHT, SIZE_WEIGHT, MAX_AGE_S, HALF_LIFE_S, FAVOUR_SMALL, NODES = 0, 1, 2, 3, 4, 5, 6

# Places of the memory: two moments, then three numbers per user: decayed GPU-seconds, GPUs in use, fair-share factor. Users who come later
# are added at the end.
LAST, RANKED, USED, IN_USE, FACTOR, PER_USER = 0, 1, 2, 3, 4, 3


@jit
def _account(now: float, params: Vector, memory: Vector) -> None:
    """Let past usage decay, and add what ran since the last decision."""
    passed = now - memory[LAST]
    if passed <= 0:
        return
    decay = 0.5 ** (passed / params[HALF_LIFE_S]) if params[HALF_LIFE_S] > 0 else 1.0
    for i in range(USED, len(memory), PER_USER):
        memory[i] = memory[i] * decay + memory[i + 1] * passed
    memory[LAST] = now


@jit
def _rank_users(memory: Vector) -> None:
    """Who used least has the factor 1, who used most 1 / users; equal usage, equal factors."""
    users = (len(memory) - USED) // PER_USER
    used = np.sort(memory[USED::PER_USER])
    for user in range(users):
        less = np.searchsorted(used, memory[USED + PER_USER * user])
        memory[FACTOR + PER_USER * user] = (users - less) / users


@rank
def rank_by_factors(view: PolicyView) -> None:
    """The highest weighted sum of factors, each between 0 and 1, first."""
    job, active, key, params, memory, cluster = view.job, view.active, view.key, view.params, view.memory, view.cluster
    if cluster.reviewed_s > memory[RANKED]:
        _account(cluster.reviewed_s, params, memory)
        _rank_users(memory)
        memory[RANKED] = cluster.reviewed_s
    _account(view.now, params, memory)
    for i in range(len(active)):
        j = active[i]
        if job[j].status != PENDING:
            key[i] = 0.0
            continue
        age = min(1.0, max(0.0, cluster.reviewed_s - job[j].submit_s) / params[MAX_AGE_S])
        size = (job[j].gpus / cluster.capacity + job[j].fewest / params[NODES]) / 2
        if params[FAVOUR_SMALL] > 0:
            size = 1.0 - size
        key[i] = -max(
            1.0,
            np.floor(
                params[AGE_WEIGHT] * age
                + params[FAIR_WEIGHT] * memory[FACTOR + PER_USER * int(job[j].user)]
                + params[SIZE_WEIGHT] * size
                + job[j].rank_key
            ),
        )


@wake
def note_users(view: PolicyView) -> float:
    """Remember who runs on how many GPUs until the next decision."""
    job, memory = view.job, view.memory
    memory[IN_USE::PER_USER] = 0.0
    for j in view.active:
        if job[j].status == RUNNING:
            memory[IN_USE + PER_USER * int(job[j].user)] += job[j].gpus
    return np.inf
