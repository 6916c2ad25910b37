"""Placement: which nodes a job gets. Shared by all loops.

An allocation is kept in `held`: row 0 the node of a one-node job (or -1), row 1 the first link of a chain for jobs on several
nodes (for a fractional job: the GPU it shares). Links live in a pool; `cursor[0]` heads the list of unused ones.
"""

from __future__ import annotations

import numpy as np

from autoscout.sched.kernel.arrays import Ledger, Table
from autoscout.sched.kernel.columns import (
    FREE,
    GPUS,
    HOME,
    KIND,
    NODES,
    PLACE_CONSOLIDATED,
    PLACE_COUNT,
    PLACE_FEWEST,
    RATE,
    SHARED,
    SIZE,
    SPEED,
    TYPE,
)
from autoscout.sched.kernel.jit import jit


@jit
def new_ledger(jobs: int, node: Table) -> Ledger:
    """An empty ledger; every link stands for at least one GPU, so their number is bounded by the GPUs there are."""
    gpus = int(node[SIZE].sum())
    widest = int(node[SIZE].max())
    held = np.full((2, jobs), -1, np.int64)
    link_next = np.arange(1, gpus + 2)
    return (
        held,
        np.full(gpus + 1, -1, np.int64),
        np.zeros(gpus + 1),
        link_next,
        np.zeros(1, np.int64),
        np.full((node.shape[1], widest), -1.0),
    )


@jit
def best_fit(node: Table, gpus: float, kind: float) -> int:
    """The first node among those with the fewest free GPUs that still hold `gpus`; -1 if there is none."""
    found = -1
    least = 1e18
    for i in range(node.shape[1]):
        free = node[FREE, i]
        if free >= gpus and free < least and (kind < 0 or node[TYPE, i] == kind):
            found = i
            least = free
            if free == gpus:
                break
    return found


@jit
def largest_node(node: Table, kind: float) -> float:
    """Size of the largest node of a type."""
    size = 0.0
    for i in range(node.shape[1]):
        if node[SIZE, i] > size and (kind < 0 or node[TYPE, i] == kind):
            size = node[SIZE, i]
    return size


@jit
def _take(node: Table, i: int, gpus: float, ledger: Ledger, j: int) -> None:
    held, link_node, link_gpus, link_next, cursor, _ = ledger
    link = cursor[0]
    cursor[0] = link_next[link]
    link_node[link] = i
    link_gpus[link] = gpus
    link_next[link] = held[1, j]
    held[1, j] = link
    node[FREE, i] -= gpus


@jit
def _emptiest(node: Table, kind: float) -> int:
    """The first node among those with the most free GPUs."""
    found = -1
    most = 0.0
    for i in range(node.shape[1]):
        if node[FREE, i] > most and (kind < 0 or node[TYPE, i] == kind):
            found = i
            most = node[FREE, i]
    return found


@jit
def _several(node: Table, gpus: float, kind: float, size: float, remainder_next: bool, ledger: Ledger, j: int) -> bool:
    """Whole free nodes plus one node for the rest; all or nothing."""
    whole = int(gpus // size)
    rest = gpus - whole * size
    free_nodes = 0
    for i in range(node.shape[1]):
        if node[FREE, i] == size and (kind < 0 or node[TYPE, i] == kind):
            free_nodes += 1
    if free_nodes < whole:
        return False
    taken = 0
    for i in range(node.shape[1]):
        if taken == whole:
            break
        if node[FREE, i] == size and (kind < 0 or node[TYPE, i] == kind):
            _take(node, i, size, ledger, j)
            taken += 1
    if rest > 0:
        last = _emptiest(node, kind) if remainder_next else best_fit(node, rest, kind)
        if last < 0 or node[FREE, last] < rest:
            release(node, j, gpus, ledger)
            return False
        _take(node, last, rest, ledger, j)
    return True


@jit
def _spread(node: Table, gpus: float, kind: float, ledger: Ledger, j: int) -> bool:
    """Fewest nodes, emptiest first."""
    available = 0.0
    for i in range(node.shape[1]):
        if kind < 0 or node[TYPE, i] == kind:
            available += node[FREE, i]
    if available < gpus:
        return False
    left = gpus
    while left > 0:
        i = _emptiest(node, kind)
        part = min(left, node[FREE, i])
        _take(node, i, part, ledger, j)
        left -= part
    return True


@jit
def _share(node: Table, gpus: float, kind: float, ledger: Ledger, j: int) -> bool:
    """A fractional job joins the fullest GPU that still holds it, or opens a new one on the fullest node."""
    held, slots = ledger[0], ledger[5]
    found = -1
    slot = -1
    least = 2.0
    for i in range(node.shape[1]):
        if node[SHARED, i] > 0 and (kind < 0 or node[TYPE, i] == kind):
            for k in range(slots.shape[1]):
                left = slots[i, k]
                if left >= gpus - 1e-9 and left < least:
                    found = i
                    slot = k
                    least = left
    if found < 0:
        found = best_fit(node, 1.0, kind)
        if found < 0:
            return False
        slot = 0
        while slots[found, slot] >= 0:
            slot += 1
        node[FREE, found] -= 1.0
        node[SHARED, found] += 1.0
        slots[found, slot] = 1.0
    slots[found, slot] -= gpus
    held[0, j] = found
    held[1, j] = slot
    return True


@jit
def release(node: Table, j: int, gpus: float, ledger: Ledger) -> None:
    """Give back every whole GPU of a job."""
    held, link_node, link_gpus, link_next, cursor, _ = ledger
    if held[0, j] >= 0:
        node[FREE, held[0, j]] += gpus
        held[0, j] = -1
    link = held[1, j]
    while link >= 0:
        node[FREE, link_node[link]] += link_gpus[link]
        following = link_next[link]
        link_next[link] = cursor[0]
        cursor[0] = link
        link = following
    held[1, j] = -1


@jit
def release_share(node: Table, j: int, gpus: float, ledger: Ledger) -> None:
    """Give back the share of a GPU that a fractional job held."""
    held, slots = ledger[0], ledger[5]
    i = held[0, j]
    k = held[1, j]
    slots[i, k] += gpus
    if slots[i, k] >= 1.0 - 1e-9:
        slots[i, k] = -1.0
        node[SHARED, i] -= 1.0
        node[FREE, i] += 1.0
    held[0, j] = -1
    held[1, j] = -1


@jit
def count_links(ledger: Ledger, j: int) -> int:
    """Nodes a job sits on."""
    held, link_next = ledger[0], ledger[3]
    if held[0, j] >= 0:
        return 1
    count = 0
    link = held[1, j]
    while link >= 0:
        count += 1
        link = link_next[link]
    return count


@jit
def _slowest(node: Table, ledger: Ledger, j: int) -> float:
    held, link_node, link_next = ledger[0], ledger[1], ledger[3]
    if held[0, j] >= 0:
        return node[SPEED, held[0, j]]
    speed = 1e18
    link = held[1, j]
    while link >= 0:
        speed = min(speed, node[SPEED, link_node[link]])
        link = link_next[link]
    return speed


@jit
def place(
    job: Table, j: int, node: Table, mode: float, must_pack: bool, remainder_next: bool, slow_two: float, slow_more: float, ledger: Ledger
) -> bool:
    """Give job `j` its GPUs if the rules allow it; sets its rate and node count.

    Counting placement leaves all nodes alone: the caller's total is the only limit.
    """
    held = ledger[0]
    gpus = job[GPUS, j]
    kind = job[KIND, j]
    if mode == PLACE_COUNT:
        job[RATE, j] = 1.0
        job[NODES, j] = 1.0
        return True
    if gpus < 1.0:
        if not _share(node, gpus, kind, ledger, j):
            return False
        job[RATE, j] = node[SPEED, held[0, j]]
        job[NODES, j] = 1.0
        return True
    size = largest_node(node, kind)
    placed = False
    if gpus <= size:
        found = best_fit(node, gpus, kind)
        if found >= 0:
            held[0, j] = found
            node[FREE, found] -= gpus
            placed = True
    elif mode != PLACE_FEWEST:
        placed = _several(node, gpus, kind, size, remainder_next, ledger, j)
    fewest = np.ceil(gpus / size)
    if not placed and (mode != PLACE_CONSOLIDATED and not must_pack):
        placed = _spread(node, gpus, kind, ledger, j)
        if placed and mode == PLACE_FEWEST and count_links(ledger, j) > fewest:
            release(node, j, gpus, ledger)
            placed = False
    if not placed:
        return False
    nodes = count_links(ledger, j)
    job[NODES, j] = nodes
    rate = _slowest(node, ledger, j)
    if nodes == fewest + 1:
        rate *= slow_two
    elif nodes > fewest + 1:
        rate *= slow_more
    job[RATE, j] = rate
    return True


@jit
def stay(job: Table, j: int, node: Table, mode: float, ledger: Ledger) -> bool:
    """Give job `j` its GPUs on the node it calls home, if they are free there; shares of one GPU are placed anew."""
    home = int(job[HOME, j])
    gpus = job[GPUS, j]
    if mode == PLACE_COUNT or gpus < 1.0 or home >= node.shape[1] or node[FREE, home] < gpus:
        return False
    ledger[0][0, j] = home
    node[FREE, home] -= gpus
    job[RATE, j] = node[SPEED, home]
    job[NODES, j] = 1.0
    return True


@jit
def give_back(job: Table, j: int, node: Table, mode: float, ledger: Ledger) -> None:
    """Free what `place` gave."""
    if mode == PLACE_COUNT:
        return
    if job[GPUS, j] < 1.0:
        release_share(node, j, job[GPUS, j], ledger)
    else:
        release(node, j, job[GPUS, j], ledger)
