"""Running jobs that others may join, by size and in order of start; and when running jobs end, as they speed up and slow down.

Both spare Lucid's loop a look at all running jobs whenever something happens.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autosched.kernel.jit import jit
from autosched.kernel.records import RUNNING, Index, Records, Vector

NONE = -1


class Ends(NamedTuple):
    """A heap of ends. A job whose end moves gets another entry; the old one is skipped when its turn comes.

    `size[0]` entries are in it. Every start and every pair makes or ends at most one entry more, which bounds them.
    """

    at_s: Vector
    who: Index
    size: Index


@jit
def new_ends(jobs: int) -> Ends:
    """Nobody runs."""
    return Ends(np.empty(4 * jobs + 4), np.empty(4 * jobs + 4, np.int64), np.zeros(1, np.int64))


@jit
def push_end(ends: Ends, at_s: float, j: int) -> None:
    """Job `j` will end then."""
    key, who = ends.at_s, ends.who
    child = ends.size[0]
    ends.size[0] += 1
    while child > 0:
        parent = (child - 1) >> 1
        if not (at_s < key[parent] or (at_s == key[parent] and j < who[parent])):
            break
        key[child], who[child] = key[parent], who[parent]
        child = parent
    key[child], who[child] = at_s, j


@jit
def _drop_first(ends: Ends) -> None:
    key, who = ends.at_s, ends.who
    ends.size[0] -= 1
    size = ends.size[0]
    last_s, last = key[size], who[size]
    parent = 0
    while True:
        child = 2 * parent + 1
        if child >= size:
            break
        if child + 1 < size and (key[child + 1] < key[child] or (key[child + 1] == key[child] and who[child + 1] < who[child])):
            child += 1
        if not (key[child] < last_s or (key[child] == last_s and who[child] < last)):
            break
        key[parent], who[parent] = key[child], who[child]
        parent = child
    if size > 0:
        key[parent], who[parent] = last_s, last


@jit
def next_end(job: Records, ends: Ends) -> float:
    """When the next job ends."""
    while ends.size[0] > 0:
        j = ends.who[0]
        if job[j].status == RUNNING and job[j].finish_s == ends.at_s[0]:
            return ends.at_s[0]
        _drop_first(ends)
    return np.inf


@jit
def take_due(job: Records, ends: Ends, until_s: float, order: Index, due: Index) -> int:
    """Take the jobs that end by a moment out of the heap into `due`, by their place in `order`; returns how many they are."""
    count = 0
    while next_end(job, ends) <= until_s:
        count = add_due(due, count, order, ends.who[0])
        _drop_first(ends)
    return count


@jit
def add_due(due: Index, count: int, order: Index, j: int) -> int:
    """One more job that ends, at its place in `order`, once."""
    p = count - 1
    while p >= 0 and order[due[p]] > order[j]:
        p -= 1
    if p >= 0 and due[p] == j:
        return count
    for i in range(count, p + 1, -1):
        due[i] = due[i - 1]
    due[p + 1] = j
    return count + 1


class Partners(NamedTuple):
    """Jobs that are alone on their GPUs, in lists of one size each, in order of start; and in the order in which they came to be alone.

    Attributes:
        size: Number of the list that a job belongs to by its size; NONE for sizes that never share.
        order: Place of each job in the order of starts.
        first, filled: Where each list begins in `alone`, and how many are in it.
        alone: The lists, one after the other.
        came, after: A chain per size of jobs that came to be alone; `last` is its newest link, `links[0]` the links in use.
        seen: Of each waiting job, the newest link when it found no partner; older ones need not be looked at again.
    """

    size: Index
    order: Index
    first: Index
    filled: Index
    alone: Index
    came: Index
    after: Index
    head: Index
    last: Index
    links: Index
    seen: Index


@jit
def new_partners(job: Records, largest: float, gpus: float) -> Partners:
    """Nobody is alone.

    Args:
        job: All jobs.
        largest: Size above which nobody shares.
        gpus: Of the cluster, and of all nodes that may come: no more can be held by those who are alone.
    """
    jobs = len(job)
    sizes, counts = np.empty(jobs), np.zeros(jobs, np.int64)
    number = 0
    size = np.full(jobs, NONE, np.int64)
    for j in range(jobs):
        if job[j].gpus > largest:
            continue
        at = 0
        while at < number and sizes[at] != job[j].gpus:
            at += 1
        if at == number:
            sizes[at] = job[j].gpus
            number += 1
        size[j] = at
        counts[at] += 1
    first = np.zeros(number + 1, np.int64)
    for at in range(number):
        first[at + 1] = first[at] + min(counts[at], int(gpus / sizes[at]) + 1)
    none = np.full(number, NONE, np.int64)
    return Partners(
        size,
        np.full(jobs, NONE, np.int64),
        first,
        np.zeros(number, np.int64),
        np.empty(first[number], np.int64),
        np.empty(3 * jobs + 3, np.int64),
        np.full(3 * jobs + 3, NONE, np.int64),
        none,
        none.copy(),
        np.zeros(1, np.int64),
        np.full(jobs, NONE, np.int64),
    )


@jit
def _place_of(partners: Partners, j: int) -> int:
    """Where in `alone` a job is, or would be."""
    at = partners.size[j]
    alone, order = partners.alone, partners.order
    low, high = partners.first[at], partners.first[at] + partners.filled[at]
    while low < high:
        middle = (low + high) >> 1
        if order[alone[middle]] < order[j]:
            low = middle + 1
        else:
            high = middle
    return low


@jit
def now_alone(partners: Partners, j: int) -> None:
    """Others may join job `j` from now on."""
    at = partners.size[j]
    if at == NONE:
        return
    alone = partners.alone
    index = _place_of(partners, j)
    for i in range(partners.first[at] + partners.filled[at], index, -1):
        alone[i] = alone[i - 1]
    alone[index] = j
    partners.filled[at] += 1
    link = partners.links[0]
    partners.links[0] += 1
    partners.came[link] = j
    if partners.last[at] == NONE:
        partners.head[at] = link
    else:
        partners.after[partners.last[at]] = link
    partners.last[at] = link


@jit
def not_alone(partners: Partners, j: int) -> None:
    """Nobody may join job `j` any more."""
    at = partners.size[j]
    if at == NONE:
        return
    alone = partners.alone
    partners.filled[at] -= 1
    for i in range(_place_of(partners, j), partners.first[at] + partners.filled[at]):
        alone[i] = alone[i + 1]
