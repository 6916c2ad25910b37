"""Order by remaining work (SRTF), known or believed."""

from __future__ import annotations

import numpy as np

from autosched.kernel.jit import jit, rank, wake
from autosched.kernel.records import PENDING, RUNNING, PolicyView, Records
from autosched.kernel.state import remaining_at

# Place of the parameter. 1: order by remaining time x GPUs; 0: by remaining time.
BY_GPU_TIME = 0
LEAST_ESTIMATE_S = 60.0  # a round: less cannot be told apart, and must not be doubled without end


@jit
def believed_at(job: Records, j: int, now: float) -> float:
    """Seconds that job `j` is believed to still need. Whenever it outlives its estimate, that is doubled.

    What has run long is likely to run on as long: durations of jobs have heavy tails. Were it believed to need more with every second, two
    such jobs would stop each other all the time.
    """
    ran = job[j].executed_s + (now - job[j].since_s if job[j].status == RUNNING else 0.0)
    estimate = max(job[j].estimate_s, LEAST_ESTIMATE_S)
    while estimate <= ran:
        estimate *= 2.0
    left: float = estimate - ran
    return left


@jit
def left_at(view: PolicyView, j: int, believed: bool) -> float:
    """Remaining time (or GPU time) of job `j`, as it is or as it is believed."""
    job = view.job
    left_s: float = believed_at(job, j, view.now) if believed else remaining_at(job, j, view.now)
    return left_s * (job[j].gpus if view.params[BY_GPU_TIME] > 0 else 1.0)


@jit
def order_by_left(view: PolicyView, believed: bool) -> None:
    """Least remaining time (or GPU time) first."""
    for i in range(len(view.active)):
        view.key[i] = left_at(view, view.active[i], believed)


@jit
def next_change(view: PolicyView, believed: bool) -> float:
    """When a running job will overtake a pending one that was chosen but found no place, or outlive what it is believed to need.

    Only then can the choice change without an event: the quota such a job held falls to jobs behind it. Chosen jobs are
    found by walking `active`, which is still in the order of the decision.
    """
    job, now = view.job, view.now
    by_gpu_time = view.params[BY_GPU_TIME] > 0
    quota = view.cluster.free_gpus
    for j in view.active:
        if job[j].status == RUNNING:
            quota += job[j].gpus
    due = np.inf
    behind = np.inf  # least key of a chosen pending job so far
    for j in view.active:
        weight = job[j].gpus if by_gpu_time else 1.0
        value = left_at(view, j, believed)
        if job[j].status == PENDING:
            if job[j].gpus <= quota:
                quota -= job[j].gpus
                behind = value
            continue
        quota -= job[j].gpus
        if believed:
            due = min(due, now + value / weight)
        if behind < np.inf:
            due = min(due, now + (value - behind) / weight)
    if due < np.inf:
        due = max(due, now) + (1.0 if view.cluster.round_s > 0 else 1e-6)
    return due


@jit
def order_by_remaining(view: PolicyView) -> None:
    """Least remaining time (or GPU time) first."""
    order_by_left(view, False)


@rank
def rank_by_remaining(view: PolicyView) -> None:
    """Least remaining time (or GPU time) first; equals keep their order."""
    order_by_left(view, False)
    view.tie[:] = 0.0


@wake
def wake_by_remaining(view: PolicyView) -> float:
    """When a running job will overtake a pending one that was chosen but found no place."""
    return next_change(view, False)


@rank
def rank_by_believed(view: PolicyView) -> None:
    """Least time (or GPU time) believed to be left first; equals keep their order."""
    order_by_left(view, True)
    view.tie[:] = 0.0


@wake
def wake_by_believed(view: PolicyView) -> float:
    """When a running job outlives its estimate, or overtakes a pending one that was chosen but found no place."""
    return next_change(view, True)
