"""Tree search over the sparse knobs (paper section 3.2).

A node is a partial configuration; its statistics are those of the told trials that extend it. They are looked up, never kept: a
result told once is known to the trees of all orderings, a configuration reached by two orders is one configuration, and the order of
telling cannot matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoscout.core.config import Config, Value
from autoscout.search.hybrid.encode import Codes, Floats
from autoscout.space import Space

Ordering = tuple[str, ...]

EXPLORATION = 4.0
"""The constant of PUCT."""
SHARPNESS = 3.0
"""Power of the acquisition in PUCT's prior."""
TOLERANCE = 0.25
"""Structures are only explored for their own sake where they promise this share of the best acquisition."""


@dataclass(frozen=True)
class Statistics:
    """Told trials as the tree sees them.

    Attributes:
        configs: What was tried.
        rewards: 0 for the worst, 1 for the best; failures 0.
    """

    configs: Sequence[Config]
    rewards: Floats

    def below(self, rows: Sequence[int], name: str) -> dict[tuple[type, Value], list[int]]:
        """The trials of a node by the value they give to the next knob."""
        found: dict[tuple[type, Value], list[int]] = {}
        for row in rows:
            config = self.configs[row]
            if name in config:
                value = config[name]
                found.setdefault((type(value), value), []).append(row)
        return found


def rewards(losses: Floats) -> Floats:
    """Normalised ranks: 1 for the best, falling evenly to 0 for the worst; ties share, all failures get 0."""
    if not len(losses):
        return losses
    worked = np.isfinite(losses)
    found = np.zeros(len(losses))
    values = losses[worked]
    if len(values):
        order = np.sort(values)
        middle = 0.5 * (np.searchsorted(order, values, "left") + np.searchsorted(order, values, "right") - 1)
        span = max(1.0, len(losses) - 1.0)
        found[worked] = 1.0 - middle / span
    return found


def descend(
    space: Space,
    ordering: Ordering,
    statistics: Statistics,
    rng: np.random.Generator,
    given: Config,
    exploration: float = 1.0,
) -> Config:
    """Selection by UCT, expansion of one child, and a random completion of the structure.

    Args:
        space: Says which values can be completed; there is no dead end.
        ordering: The sparse knobs, in the order in which they are decided.
        statistics: Of the told trials.
        rng: For ties and the completion.
        given: Pinned knobs.
        exploration: The constant of UCT.

    Returns:
        A complete structure: given and every active sparse knob.
    """
    partial = given
    rows = [row for row, config in enumerate(statistics.configs) if config.extends(given)]
    inside = True
    while (name := following(space, ordering, partial)) is not None:
        choices = space.choices(name, partial)
        if not inside:
            value = choices[int(rng.integers(len(choices)))]
        else:
            children = statistics.below(rows, name)
            value = _select(choices, children, len(rows), statistics.rewards, rng, exploration)
            rows = children.get((type(value), value), [])
            inside = bool(rows)  # a child without trials is the one that is expanded
        partial = partial.extend({name: value})
    return partial


def following(space: Space, ordering: Ordering, partial: Config) -> str | None:
    """The first knob of the ordering that `partial` leaves open and whose condition is decided."""
    for name in ordering:
        if (
            name not in partial
            and space.ancestors(name) & set(ordering) <= _decided(space, ordering, partial)
            and space.choices(name, partial)
        ):
            return name
    return None


def _decided(space: Space, ordering: Ordering, partial: Config) -> set[str]:
    """Knobs with a value, and those that can no longer get one."""
    return {name for name in ordering if name in partial or not space.choices(name, partial)}


def _select(
    choices: Sequence[Value],
    children: dict[tuple[type, Value], list[int]],
    visits: int,
    reward: Floats,
    rng: np.random.Generator,
    exploration: float,
) -> Value:
    fresh = [value for value in choices if (type(value), value) not in children]
    if fresh:
        return fresh[int(rng.integers(len(fresh)))]
    scores = []
    for value in choices:
        below = children[(type(value), value)]
        mean = float(np.mean(reward[below]))
        scores.append(mean + exploration * np.sqrt(2.0 * np.log(max(visits, 1)) / len(below)))
    return choices[int(np.argmax(scores))]


def guided(codes: Codes, acquisition: Floats, order: NDArray[np.int64], told: Codes, reward: Floats) -> int:
    """PUCT over candidates: the largest acquisition below a child is its prior; returns the row of the best candidate reached.

    Args:
        codes: Candidates.
        acquisition: Of each candidate, positive.
        order: Columns of the sparse knobs in the order of decision.
        told: Rows of trials that worked.
        reward: Of each of them, 0 to 1.
    """
    rows, below = np.flatnonzero(acquisition >= TOLERANCE * acquisition.max()), np.arange(len(told))
    prior_of = (acquisition / acquisition.max()) ** SHARPNESS
    for column in order:
        values = np.unique(codes[rows, column])
        chosen = int(values[0])
        if len(values) > 1:
            chosen = _puct(codes[rows, column], prior_of[rows], told[below, column], reward[below], values)
        rows = rows[codes[rows, column] == chosen]
        below = below[told[below, column] == chosen]
    return int(rows[np.argmax(acquisition[rows])])


def _puct(column: Codes, prior_of: Floats, told: Codes, reward: Floats, values: Codes) -> int:
    prior = np.array([prior_of[column == value].max() for value in values])
    prior = prior / prior.sum()
    visits = np.array([(told == value).sum() for value in values])
    quality = np.array([reward[told == value].max() if count else 0.5 for value, count in zip(values, visits, strict=True)])
    return int(values[np.argmax(quality + EXPLORATION * prior * np.sqrt(visits.sum() + 1.0) / (1.0 + visits))])
