"""Nodes by free GPUs, as sets of bits: a node with as many free GPUs is found without looking at all the others.

Row f of `shelves` holds the nodes with f free GPUs, `BITS` of them in a word. Whoever changes `free` of a node moves it.
"""

from __future__ import annotations

import numpy as np

from autosched.kernel.jit import jit
from autosched.kernel.records import Records, Shelves, Vector

BITS = 62  # of a word; the sign stays out of it


@jit
def new_shelves(node: Records) -> tuple[Shelves, Vector]:
    """Every node on its shelf; the sizes of the largest and of the smallest node that is there."""
    sizes = np.zeros(2)
    measure(node, sizes)
    shelves = np.zeros((int(sizes[0]) + 1, len(node) // BITS + 1), np.int64)
    for i in range(len(node)):
        shelves[int(node[i].free), i // BITS] |= 1 << (i % BITS)
    return shelves, sizes


@jit
def measure(node: Records, sizes: Vector) -> None:
    """Write down the sizes of the largest and of the smallest node that is there."""
    sizes[0], sizes[1] = 0.0, np.inf
    for i in range(len(node)):
        if node[i].gpus > 0:
            sizes[0], sizes[1] = max(sizes[0], node[i].gpus), min(sizes[1], node[i].gpus)


@jit
def set_free(node: Records, i: int, free: float, shelves: Shelves) -> None:
    """Node `i` has as many free GPUs from now on."""
    bit = 1 << (i % BITS)
    shelves[int(node[i].free), i // BITS] &= ~bit
    shelves[int(free), i // BITS] |= bit
    node[i].free = free


@jit
def first_on(shelves: Shelves, free: int, start: int) -> int:
    """The first node from number `start` on that has exactly `free` free GPUs; -1 if there is none."""
    word = start // BITS
    bits = shelves[free, word] >> (start % BITS) << (start % BITS) if word < shelves.shape[1] else 0
    while bits == 0:
        word += 1
        if word >= shelves.shape[1]:
            return -1
        bits = shelves[free, word]
    bits &= -bits
    index = 0
    for step in (32, 16, 8, 4, 2, 1):
        if bits >> step > 0:
            bits >>= step
            index += step
    return word * BITS + index


@jit
def has_as_many(shelves: Shelves, free: int, gpus: float) -> bool:
    """Whether that many nodes have exactly `free` free GPUs."""
    count = 0
    at = -1
    while count < gpus:
        at = first_on(shelves, free, at + 1)
        if at < 0:
            return False
        count += 1
    return True
