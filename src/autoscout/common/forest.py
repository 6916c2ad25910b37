"""A small forest of extremely randomised trees (Geurts, Ernst, Wehenkel 2006), enough to explain a hundred trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoscout.core.config import Config, Value

Matrix = NDArray[np.float64]


class ForestEncoder:
    """Turns configs into rows of numbers, knob by knob.

    Numbers become their rank among the values seen, because knobs range over powers of two and only their order matters
    to a tree; everything else becomes a code. An inactive knob takes the middle value of those that are active: a value
    of its own would let a tree read a parent's setting off its children, and the child would get the parent's credit.
    """

    def __init__(self, configs: Sequence[Config]) -> None:
        self.names: tuple[str, ...] = tuple(sorted({name for config in configs for name in config}))
        self.categorical: NDArray[np.bool_] = np.zeros(len(self.names), dtype=bool)
        self._codes: list[dict[str, float]] = []
        self._levels: list[Matrix] = []
        self._middle: Matrix = np.zeros(len(self.names))
        for column, name in enumerate(self.names):
            values = [config[name] for config in configs if name in config]
            self.categorical[column] = not all(_is_number(value) for value in values)
            codes = {text: float(code) for code, text in enumerate(sorted({repr(value) for value in values}))}
            numbers = [] if self.categorical[column] else [float(value) for value in values if isinstance(value, (int, float))]
            self._codes.append(codes)
            self._levels.append(np.unique(np.asarray(numbers)))
            ranks = sorted(self._cell(column, value) for value in values)
            self._middle[column] = ranks[len(ranks) // 2]

    def _cell(self, column: int, value: Value) -> float:
        if self.categorical[column]:
            return self._codes[column].get(repr(value), 0.0)
        levels = self._levels[column]
        return float(np.interp(float(value), levels, np.arange(len(levels)))) if isinstance(value, (int, float)) else 0.0

    def encode(self, configs: Sequence[Config]) -> Matrix:
        """One row per config, one column per knob."""
        rows = np.tile(self._middle, (len(configs), 1))
        for row, config in enumerate(configs):
            for column, name in enumerate(self.names):
                if name in config:
                    rows[row, column] = self._cell(column, config[name])
        return rows

    def active(self, configs: Sequence[Config]) -> NDArray[np.bool_]:
        """Which knobs each config holds."""
        return np.array([[name in config for name in self.names] for config in configs], dtype=bool).reshape(len(configs), len(self.names))

    def varied(self, configs: Sequence[Config]) -> NDArray[np.bool_]:
        """Which knobs take more than one value among the configs that hold them."""
        domains = [{repr(config[name]) for config in configs if name in config} for name in self.names]
        return np.array([len(values) > 1 for values in domains], dtype=bool)


def _is_number(value: Value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@dataclass(frozen=True)
class _Tree:
    order: list[Matrix | None]  # per column: a shuffled place for each code, so that a threshold is a random subset
    feature: NDArray[np.int64]  # -1 in a leaf
    threshold: Matrix
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    value: Matrix

    def predict(self, rows: Matrix) -> Matrix:
        rows = _shuffle(rows, self.order)
        node = np.zeros(len(rows), dtype=np.int64)
        everyone = np.arange(len(rows))
        while True:
            feature = self.feature[node]
            inner = feature >= 0
            if not inner.any():
                return self.value[node]
            below = rows[everyone, np.maximum(feature, 0)] <= self.threshold[node]
            node = np.where(inner, np.where(below, self.left[node], self.right[node]), node)


def _shuffle(rows: Matrix, order: list[Matrix | None]) -> Matrix:
    if all(places is None for places in order):
        return rows
    rows = rows.copy()
    for column, places in enumerate(order):
        if places is not None:
            rows[:, column] = places[rows[:, column].astype(np.int64)]
    return rows


class Forest:
    """Trees on bootstrap samples; `outside` says which rows a tree has not seen."""

    def __init__(
        self,
        rows: Matrix,
        target: Matrix,
        categorical: NDArray[np.bool_],
        rng: np.random.Generator,
        trees: int = 50,
        min_leaf: int = 2,
    ) -> None:
        self._trees: list[_Tree] = []
        self.outside: NDArray[np.bool_] = np.ones((trees, len(rows)), dtype=bool)
        for number in range(trees):
            sample = rng.integers(0, len(rows), len(rows))
            self.outside[number, sample] = False
            order: list[Matrix | None] = [
                rng.permutation(int(rows[:, column].max()) + 1).astype(float) if categorical[column] else None
                for column in range(rows.shape[1])
            ]
            self._trees.append(_grow(_shuffle(rows, order)[sample], target[sample], order, rng, min_leaf))

    def predict_each(self, rows: Matrix) -> Matrix:
        """Every tree's opinion: trees x rows."""
        return np.array([tree.predict(rows) for tree in self._trees])

    def predict(self, rows: Matrix) -> Matrix:
        """The mean opinion."""
        mean: Matrix = self.predict_each(rows).mean(axis=0)
        return mean


def _grow(rows: Matrix, target: Matrix, order: list[Matrix | None], rng: np.random.Generator, min_leaf: int) -> _Tree:
    feature: list[int] = []
    threshold: list[float] = []
    left: list[int] = []
    right: list[int] = []
    value: list[float] = []
    stack: list[tuple[NDArray[np.int64], int, bool]] = [(np.arange(len(rows)), -1, False)]
    while stack:
        members, parent, is_left = stack.pop()
        node = len(feature)
        if parent >= 0:
            (left if is_left else right)[parent] = node
        split = _split(rows[members], target[members], rng, min_leaf)
        feature.append(split[0] if split else -1)
        threshold.append(split[1] if split else 0.0)
        left.append(-1)
        right.append(-1)
        value.append(float(np.add.reduce(target[members])) / len(members))
        if split:
            below = rows[members, split[0]] <= split[1]
            stack.append((members[~below], node, False))
            stack.append((members[below], node, True))
    return _Tree(order, np.array(feature), np.array(threshold), np.array(left), np.array(right), np.array(value))


def _split(rows: Matrix, target: Matrix, rng: np.random.Generator, min_leaf: int) -> tuple[int, float] | None:
    """One random threshold per column; the column whose threshold removes most variance.

    Asked a hundred thousand times for one report, about few rows each: hence reductions without what `mean` and the like check.
    """
    count = len(rows)
    if count < 2 * min_leaf or np.minimum.reduce(target) == np.maximum.reduce(target):
        return None
    low, high = np.minimum.reduce(rows), np.maximum.reduce(rows)
    thresholds = low + rng.random(rows.shape[1]) * (high - low)
    below = rows <= thresholds
    counts = np.add.reduce(below, dtype=np.int64)
    others = count - counts
    allowed = (counts >= min_leaf) & (others >= min_leaf) & (high > low)
    sums = (target - np.add.reduce(target) / count) @ below
    score = np.where(allowed, sums * sums * count / np.maximum(counts * others, 1), -1.0)
    column = int(score.argmax())
    return (column, float(thresholds[column])) if score[column] >= 0.0 else None
