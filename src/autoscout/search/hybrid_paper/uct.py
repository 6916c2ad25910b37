"""Monte Carlo tree search over the sparse knobs (paper section 3.2), one tree per ordering of them.

A node is a partial configuration. Its visits and rewards are counted afresh from all told trials at every ask: a result told once is
known to the trees of all orderings, a configuration reached by two orders is one configuration, and the order of telling cannot matter.
Only the shape of the tree is kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from autoscout.core.config import Config, Value
from autoscout.search.hybrid_paper.tournament import Ordering
from autoscout.space import Space
from autoscout.space.encode import Floats

Edge = tuple[str, type, Value]


class Tree:
    """The tree of one ordering.

    Args:
        space: Says which values can be completed; there is no dead end.
        ordering: The sparse knobs, in the order in which they are decided; ancestors first.
    """

    def __init__(self, space: Space, ordering: Ordering) -> None:
        self._space = space
        self.ordering = ordering
        self._children: list[dict[Edge, int]] = [{}]
        self._paths: dict[Config, list[int]] = {}
        self._branches: dict[tuple[Config, int, str], tuple[Sequence[Value], list[int]]] = {}

    def path(self, config: Config) -> list[int]:
        """The nodes that a configuration lies below, from the root down."""
        if config not in self._paths:
            nodes = [0]
            for name in self.ordering:
                if name in config:
                    nodes.append(self._child(nodes[-1], name, config[name]))
            self._paths[config] = nodes
        return self._paths[config]

    def _child(self, node: int, name: str, value: Value) -> int:
        edge = (name, type(value), value)
        if edge not in self._children[node]:
            self._children[node][edge] = len(self._children)
            self._children.append({})
        return self._children[node][edge]

    def count(self, configs: Sequence[Config], rewards: Floats, unpaid: Iterable[Config] = ()) -> Visits:
        """Visits and rewards of all nodes.

        Args:
            configs: What was tried, in an order that depends on nothing but the set: sums of fractions do.
            rewards: 0 for the worst, 1 for the best.
            unpaid: Visits without a reward yet.
        """
        paths = [self.path(config) for config in configs]
        more = [self.path(config) for config in unpaid]
        size = len(self._children)
        nodes = np.fromiter(chain.from_iterable(paths), dtype=np.int64)
        waiting = np.fromiter(chain.from_iterable(more), dtype=np.int64)
        earned = np.repeat(rewards, [len(path) for path in paths])
        visits = np.bincount(nodes, minlength=size) + np.bincount(waiting, minlength=size)
        return Visits(visits.tolist(), np.bincount(nodes, earned, size).tolist())

    def descend(self, count: Visits, rng: np.random.Generator, given: Config, exploration: float) -> Config:
        """Selection by UCT, expansion of one child, and a random completion of the structure.

        Returns:
            A complete structure: `given` and every active sparse knob.
        """
        partial, node, inside = given, 0, True
        for name in self.ordering:
            if name in partial:
                node = self._child(node, name, partial[name])
                continue
            if not inside:
                if choices := self._space.choices(name, partial):
                    partial = partial.extend({name: choices[int(rng.integers(len(choices)))]})
                continue
            choices, nodes = self._branch(given, node, name, partial)
            if choices:
                place = count.select(nodes, node, rng, exploration)
                node, partial = nodes[place], partial.extend({name: choices[place]})
                inside = count.visits(node) > 0  # a child without a visit is the one that is expanded
        return partial

    def _branch(self, given: Config, node: int, name: str, partial: Config) -> tuple[Sequence[Value], list[int]]:
        """The values that a knob can take below a node, none where it is inactive, with their nodes."""
        key = (given, node, name)
        if key not in self._branches:
            choices = self._space.choices(name, partial)
            self._branches[key] = (choices, [self._child(node, name, value) for value in choices])
        return self._branches[key]

    def structures(self, given: Config) -> Iterator[Config]:
        """Every structure that extends `given`."""
        yield from self._below(given, self.ordering)

    def _below(self, partial: Config, names: Sequence[str]) -> Iterator[Config]:
        if not names:
            yield partial
            return
        choices = () if names[0] in partial else self._space.choices(names[0], partial)
        for value in choices:
            yield from self._below(partial.extend({names[0]: value}), names[1:])
        if not choices:
            yield from self._below(partial, names[1:])


class Visits:
    """How often each node was visited, and what that earned."""

    def __init__(self, visits: list[int], earned: list[float]) -> None:
        self._visits = visits
        self._earned = earned

    def visits(self, node: int) -> int:
        return self._visits[node] if node < len(self._visits) else 0

    def visit(self, path: Iterable[int]) -> None:
        """One more visit that earns nothing: what is known already, or on its way, is not worth a second look."""
        for node in path:
            if node >= len(self._visits):
                grown = node + 1 - len(self._visits)
                self._visits += [0] * grown
                self._earned += [0.0] * grown
            self._visits[node] += 1

    def select(self, nodes: Sequence[int], parent: int, rng: np.random.Generator, exploration: float) -> int:
        """The place of the child to go to: one that nobody visited, else the largest upper confidence bound."""
        fresh = [place for place, node in enumerate(nodes) if not self.visits(node)]
        if fresh:
            return fresh[int(rng.integers(len(fresh)))]
        width = 2.0 * math.log(max(1, self.visits(parent)))
        bounds = [self._earned[node] / self._visits[node] + exploration * math.sqrt(width / self._visits[node]) for node in nodes]
        return bounds.index(max(bounds))
