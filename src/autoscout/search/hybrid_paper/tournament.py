"""The tournament of orderings (paper section 3.2): which sparse knob to decide first is itself searched."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autoscout.space import Space

Ordering = tuple[str, ...]
"""The sparse knobs in the order in which they are decided."""


@dataclass(frozen=True)
class Stage:
    """Where an iteration of the paper's tournament falls.

    Attributes:
        number: Of the round, counted from 0.
        begins: Iteration with which the round begins.
        place: Whose turn it is, among the trees alive.
    """

    number: int
    begins: int
    place: int


def stage(trees: int, iteration: int) -> Stage | None:
    """The round and the turn of an iteration, by the paper's schedule; None when the tournament is over.

    A round lasts as many iterations as trees entered, and some more where it takes those for each tree alive to have proposed equally
    often: cumulative rewards compare nothing else. Sweeps go forwards and backwards in turn (zigzag). Half of the trees stay, an odd
    one too.

    Args:
        trees: K, how many entered.
        iteration: Counted from 0.
    """
    number, begins, sweeps, alive = 0, 0, 0, trees
    while alive > 1:
        each = math.ceil(trees / alive)
        if iteration < begins + each * alive:
            sweep, place = divmod(iteration - begins, alive)
            return Stage(number, begins, alive - 1 - place if (sweeps + sweep) % 2 else place)
        number, begins, sweeps, alive = number + 1, begins + each * alive, sweeps + each, (alive + 1) // 2
    return None


def halve(alive: Sequence[int], totals: Mapping[int, float]) -> tuple[int, ...]:
    """The better half by cumulative reward, in their first order; an odd one stays, ties go to the earlier tree."""
    ranked = sorted(alive, key=lambda tree: (-totals.get(tree, 0.0), tree))
    return tuple(sorted(ranked[: (len(alive) + 1) // 2]))


def orderings(space: Space, count: int, rng: np.random.Generator, first: Sequence[Sequence[str]] = ()) -> tuple[Ordering, ...]:
    """Distinct legal orderings of the sparse knobs: the given ones, then by falling impact, then random ones.

    Without trials the number of values is taken for impact: a wide choice splits the space most. Fewer come back when
    there are no more.
    """
    names = space.sparse
    distinct: dict[Ordering, None] = {}
    for wish in first:
        distinct[legal(space, wish)] = None
    distinct[legal(space, sorted(names, key=lambda name: -len(space.knobs[name].values)))] = None
    for _ in range(20 * count):
        if len(distinct) >= count:
            break
        distinct[legal(space, [names[index] for index in rng.permutation(len(names))])] = None
    return tuple(distinct)[:count]


def legal(space: Space, wish: Sequence[str]) -> Ordering:
    """The sparse knobs as near to the wished order as conditions allow: a knob comes after its sparse ancestors; unnamed ones last."""
    sparse = set(space.sparse)
    queue = [*dict.fromkeys(name for name in wish if name in sparse)]
    queue += [name for name in space.sparse if name not in queue]
    placed: list[str] = []
    while queue:
        name = next(name for name in queue if space.ancestors(name) & sparse <= set(placed))
        placed.append(name)
        queue.remove(name)
    return tuple(placed)
