"""Placement: which nodes a job gets. Shared by all loops.

An allocation is kept in `held`: row 0 the node of a one-node job (or -1), row 1 the first link of a chain for jobs on several
nodes (for a fractional job: the GPU it shares). Links live in a pool; `cursor[0]` heads the list of unused ones.
"""

from __future__ import annotations

import numpy as np

from autosched.kernel.jit import jit
from autosched.kernel.records import (
    PLACE_CONSOLIDATED,
    PLACE_COUNT,
    PLACE_FEWEST,
    Allocations,
    Index,
    Record,
    Records,
    Shelves,
    Table,
    Vector,
)
from autosched.kernel.shelves import first_on, has_as_many, new_shelves, set_free

CHAINED = -2
"""In rows of allocations: the job runs on several nodes, one row each."""


@jit
def new_allocations(jobs: int, node: Records, shares: Table) -> Allocations:
    """An empty allocations over what is left of shared GPUs; every link holds at least one GPU, so there are no more links than GPUs."""
    gpus = shares.shape[0] * shares.shape[1]
    shelves, sizes = new_shelves(node)
    return Allocations(
        np.full((2, jobs), -1, np.int64),
        np.full(gpus + 1, -1, np.int64),
        np.zeros(gpus + 1),
        np.arange(1, gpus + 2),
        np.zeros(1, np.int64),
        shares,
        shelves,
        sizes,
    )


@jit
def best_fit(node: Records, gpus: float, kind: float, shelves: Shelves) -> int:
    """The first node among those with the fewest free GPUs that still hold `gpus`; -1 if there is none."""
    best = -1
    if kind < 0 and len(node) > shelves.shape[0]:
        for free in range(int(gpus), shelves.shape[0]):
            best = first_on(shelves, free, 0)
            if best >= 0:
                break
        return best
    least = 1e18
    for i in range(len(node)):
        free = node[i].free
        if free >= gpus and free < least and (kind < 0 or node[i].kind == kind):
            best = i
            least = free
            if free == gpus:
                break
    return best


@jit
def largest_node(node: Records, kind: float, sizes: Vector) -> float:
    """Size of the largest node of a type."""
    if kind < 0:
        return sizes[0]
    size = 0.0
    for i in range(len(node)):
        if node[i].gpus > size and node[i].kind == kind:
            size = node[i].gpus
    return size


@jit
def _take(node: Records, i: int, gpus: float, allocations: Allocations, j: int) -> None:
    held, link_node, link_gpus, link_next, cursor = (
        allocations.held,
        allocations.link_node,
        allocations.link_gpus,
        allocations.link_next,
        allocations.cursor,
    )
    link = cursor[0]
    cursor[0] = link_next[link]
    link_node[link] = i
    link_gpus[link] = gpus
    link_next[link] = held[1, j]
    held[1, j] = link
    set_free(node, i, node[i].free - gpus, allocations.shelves)


@jit
def _emptiest(node: Records, kind: float, shelves: Shelves) -> int:
    """The first node among those with the most free GPUs; -1 if all are full."""
    best = -1
    if kind < 0 and len(node) > shelves.shape[0]:
        for free in range(shelves.shape[0] - 1, 0, -1):
            best = first_on(shelves, free, 0)
            if best >= 0:
                break
        return best
    most = 0.0
    for i in range(len(node)):
        if node[i].free > most and (kind < 0 or node[i].kind == kind):
            best = i
            most = node[i].free
    return best


@jit
def _several(
    node: Records, gpus: float, kind: float, size: float, fewest: float, to_emptiest: bool, allocations: Allocations, j: int
) -> bool:
    """Whole free nodes, the largest first, plus one node for the rest; on the fewest nodes possible, all or nothing."""
    missing = gpus
    taken = 0
    shelves, alike = allocations.shelves, allocations.sizes[0] == allocations.sizes[1]
    if alike and not has_as_many(shelves, int(size), missing // size):
        return False
    while missing >= size:  # nodes of one size after the other
        i = first_on(shelves, int(size), 0)
        while i >= 0 and missing >= size:
            if node[i].gpus == size and (kind < 0 or node[i].kind == kind):
                _take(node, i, size, allocations, j)
                missing -= size
                taken += 1
            i = first_on(shelves, int(size), i + 1)
        if alike:
            break
        smaller = 0.0
        for i in range(len(node)):
            if smaller < node[i].gpus < size and (kind < 0 or node[i].kind == kind):
                smaller = node[i].gpus
        if smaller == 0.0 or taken + np.ceil(missing / smaller) > fewest:
            break
        size = smaller
    last = -1
    if missing > 0:
        last = _emptiest(node, kind, shelves) if to_emptiest else best_fit(node, missing, kind, shelves)
        taken += 1
    if taken > fewest or (missing > 0 and (last < 0 or node[last].free < missing)):
        release(node, j, gpus, allocations)
        return False
    if missing > 0:
        _take(node, last, missing, allocations, j)
    return True


@jit
def _spread(node: Records, gpus: float, kind: float, allocations: Allocations, j: int) -> bool:
    """Fewest nodes, emptiest first."""
    available = 0.0
    for i in range(len(node)):
        if kind < 0 or node[i].kind == kind:
            available += node[i].free
            if available >= gpus:
                break
    if available < gpus:
        return False
    missing = gpus
    while missing > 0:
        i = _emptiest(node, kind, allocations.shelves)
        part = min(missing, node[i].free)
        _take(node, i, part, allocations, j)
        missing -= part
    return True


@jit
def _share(node: Records, gpus: float, kind: float, allocations: Allocations, j: int) -> bool:
    """A fractional job joins the fullest GPU that still holds it, or opens a new one on the fullest node."""
    held, slots = allocations.held, allocations.shares
    best = -1
    slot = -1
    least = 2.0
    for i in range(len(node)):
        if node[i].shared > 0 and (kind < 0 or node[i].kind == kind):
            for k in range(slots.shape[1]):
                free = slots[i, k]
                if free >= gpus - 1e-9 and free < least:
                    best = i
                    slot = k
                    least = free
    if best < 0:
        best = best_fit(node, 1.0, kind, allocations.shelves)
        if best < 0:
            return False
        slot = 0
        while slots[best, slot] >= 0:
            slot += 1
        set_free(node, best, node[best].free - 1.0, allocations.shelves)
        node[best].shared += 1.0
        slots[best, slot] = 1.0
    slots[best, slot] = max(0.0, slots[best, slot] - gpus)  # below zero means that nobody shares it
    held[0, j] = best
    held[1, j] = slot
    return True


@jit
def release(node: Records, j: int, gpus: float, allocations: Allocations) -> None:
    """Give back every whole GPU of a job."""
    held, link_node, link_gpus, link_next, cursor = (
        allocations.held,
        allocations.link_node,
        allocations.link_gpus,
        allocations.link_next,
        allocations.cursor,
    )
    shelves = allocations.shelves
    if held[0, j] >= 0:
        set_free(node, held[0, j], node[held[0, j]].free + gpus, shelves)
        held[0, j] = -1
    link = held[1, j]
    while link >= 0:
        i = link_node[link]
        set_free(node, i, node[i].free + link_gpus[link], shelves)
        following = link_next[link]
        link_next[link] = cursor[0]
        cursor[0] = link
        link = following
    held[1, j] = -1


@jit
def release_share(node: Records, j: int, gpus: float, allocations: Allocations) -> None:
    """Give back the share of a GPU that a fractional job held."""
    held, slots = allocations.held, allocations.shares
    i = held[0, j]
    k = held[1, j]
    slots[i, k] += gpus
    if slots[i, k] >= 1.0 - 1e-9:
        slots[i, k] = -1.0
        node[i].shared -= 1.0
        set_free(node, i, node[i].free + 1.0, allocations.shelves)
    held[0, j] = -1
    held[1, j] = -1


@jit
def count_links(allocations: Allocations, j: int) -> int:
    """Nodes a job runs on."""
    held, link_next = allocations.held, allocations.link_next
    if held[0, j] >= 0:
        return 1
    count = 0
    link = held[1, j]
    while link >= 0:
        count += 1
        link = link_next[link]
    return count


@jit
def holdings(node: Records, allocations: Allocations, j: int, gpus: float, by_kind: Vector) -> None:
    """Write how many GPUs of each type a running job holds."""
    held, link_node, link_gpus, link_next = allocations.held, allocations.link_node, allocations.link_gpus, allocations.link_next
    by_kind[:] = 0.0
    if held[0, j] >= 0:
        by_kind[int(node[held[0, j]].kind)] += gpus
        return
    link = held[1, j]
    while link >= 0:
        by_kind[int(node[link_node[link]].kind)] += link_gpus[link]
        link = link_next[link]


@jit
def _slowest(node: Records, allocations: Allocations, j: int) -> float:
    held, link_node, link_next = allocations.held, allocations.link_node, allocations.link_next
    if held[0, j] >= 0:
        return node[held[0, j]].speed
    speed = 1e18
    link = held[1, j]
    while link >= 0:
        speed = min(speed, node[link_node[link]].speed)
        link = link_next[link]
    return speed


@jit
def _set_rate(job: Records, j: int, node: Records, option: Record, allocations: Allocations) -> None:
    """The speed of a job that holds whole GPUs: of its slowest node, less when it is on more nodes than needed."""
    nodes = count_links(allocations, j)
    job[j].nodes = nodes
    rate = _slowest(node, allocations, j)
    if nodes == job[j].fewest + 1:
        rate *= option.slow_two
    elif nodes > job[j].fewest + 1:
        rate *= option.slow_more
    job[j].rate = rate


@jit
def place(job: Records, j: int, node: Records, option: Record, must_pack: bool, allocations: Allocations) -> bool:
    """Give job `j` its GPUs if the placement rules of `option` allow it; sets its rate and node count.

    Counting placement leaves all nodes alone: the caller's total is the only limit.
    """
    held = allocations.held
    gpus = job[j].gpus
    kind = job[j].kind
    mode = option.placement
    if mode == PLACE_COUNT:
        job[j].rate = 1.0
        job[j].nodes = 1.0
        return True
    if gpus < 1.0:
        if not _share(node, gpus, kind, allocations, j):
            return False
        job[j].rate = node[held[0, j]].speed
        job[j].nodes = 1.0
        return True
    best = best_fit(node, gpus, kind, allocations.shelves)
    if best >= 0:
        held[0, j] = best
        set_free(node, best, node[best].free - gpus, allocations.shelves)
        job[j].rate = node[best].speed
        job[j].nodes = 1.0
        return True
    size = largest_node(node, kind, allocations.sizes)
    placed = False
    if gpus > size and mode != PLACE_FEWEST:
        placed = _several(node, gpus, kind, size, job[j].fewest, option.remainder_to_emptiest > 0, allocations, j)
    if not placed and (mode != PLACE_CONSOLIDATED and not must_pack):
        placed = _spread(node, gpus, kind, allocations, j)
        if placed and mode == PLACE_FEWEST and count_links(allocations, j) > job[j].fewest:
            release(node, j, gpus, allocations)
            placed = False
    if not placed:
        return False
    _set_rate(job, j, node, option, allocations)
    return True


@jit
def stay(job: Records, j: int, node: Records, option: Record, where: Table, allocations: Allocations) -> bool:
    """Give job `j` its GPUs on the nodes of `where`, rows of (job, node, GPUs), if they are free there and add up to what it wants.

    Shares of one GPU are placed anew.
    """
    gpus = job[j].gpus
    if option.placement == PLACE_COUNT or gpus < 1.0 or where[:, 2].sum() != gpus:
        return False
    for row in range(len(where)):
        if node[int(where[row, 1])].free < where[row, 2]:
            return False
    if len(where) == 1:
        i = int(where[0, 1])
        allocations.held[0, j] = i
        set_free(node, i, node[i].free - gpus, allocations.shelves)
    else:
        for row in range(len(where)):
            _take(node, int(where[row, 1]), where[row, 2], allocations, j)
    _set_rate(job, j, node, option, allocations)
    return True


@jit
def restore(allocations: Allocations, where: Table) -> None:
    """Fill an empty allocations from rows of (job, node, GPUs, GPU it shares or -1), in the order of the chains; nodes are left alone."""
    held, link_node, link_gpus, link_next, cursor = (
        allocations.held,
        allocations.link_node,
        allocations.link_gpus,
        allocations.link_next,
        allocations.cursor,
    )
    for row in range(len(where) - 1, -1, -1):
        j, i, gpus, slot = int(where[row, 0]), int(where[row, 1]), where[row, 2], int(where[row, 3])
        if slot != CHAINED:
            held[0, j], held[1, j] = i, slot
            continue
        link = cursor[0]
        cursor[0] = link_next[link]
        link_node[link], link_gpus[link], link_next[link] = i, gpus, held[1, j]
        held[1, j] = link


@jit
def allocation_rows(job: Records, active: Index, present: int, allocations: Allocations) -> Table:
    """Rows of (job, node, GPUs, GPU it shares, -1 for whole ones or CHAINED for one of several nodes), from which `restore` rebuilds."""
    held = allocations.held
    count = 0
    for i in range(present):
        if held[0, active[i]] >= 0 or held[1, active[i]] >= 0:
            count += count_links(allocations, active[i])
    rows = np.zeros((count, 4))
    at = 0
    for i in range(present):
        j = active[i]
        if held[0, j] >= 0:
            rows[at, 0], rows[at, 1], rows[at, 2], rows[at, 3] = j, held[0, j], job[j].gpus, held[1, j]
            at += 1
            continue
        link = held[1, j]
        while link >= 0:
            rows[at, 0], rows[at, 1], rows[at, 2], rows[at, 3] = j, allocations.link_node[link], allocations.link_gpus[link], CHAINED
            at += 1
            link = allocations.link_next[link]
    return rows


@jit
def give_back(job: Records, j: int, node: Records, mode: float, allocations: Allocations) -> None:
    """Free what `place` gave."""
    if mode == PLACE_COUNT:
        return
    if job[j].gpus < 1.0:
        release_share(node, j, job[j].gpus, allocations)
    else:
        release(node, j, job[j].gpus, allocations)
