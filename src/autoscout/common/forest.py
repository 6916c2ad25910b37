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


@dataclass(frozen=True, kw_only=True)
class _Nodes:
    """The nodes of all trees; the first are the roots, one for each tree."""

    feature: NDArray[np.int64]  # -1 in a leaf
    threshold: Matrix
    child: NDArray[np.int64]  # the one of rows up to the threshold; that of the others is next to it
    value: Matrix


class Forest:
    """Trees on bootstrap samples; `outside` says which rows a tree has not seen.

    All trees grow together, level by level, and are walked together: a report asks for hundreds of them, about few rows each.
    """

    def __init__(
        self,
        rows: Matrix,
        target: Matrix,
        categorical: NDArray[np.bool_],
        rng: np.random.Generator,
        trees: int = 50,
        min_leaf: int = 2,
    ) -> None:
        count, columns = rows.shape
        samples = rng.integers(0, count, (trees, count))
        self.outside: NDArray[np.bool_] = np.ones((trees, count), dtype=bool)
        np.put_along_axis(self.outside, samples, False, axis=1)
        # Per tree and column of codes: a shuffled place for each, so that a threshold is a random subset.
        self._order = {
            column: np.array([rng.permutation(int(rows[:, column].max()) + 1) for _ in range(trees)], dtype=float)
            for column in range(columns)
            if categorical[column]
        }
        self._trees = trees
        inside = np.take_along_axis(self._shuffled(rows), samples[:, :, np.newaxis], axis=1)
        self._nodes = _grow(inside, target[samples], rng, min_leaf)

    def predict_each(self, rows: Matrix) -> Matrix:
        """Every tree's opinion: trees x rows."""
        nodes, places = self._nodes, self._shuffled(rows)
        node = np.repeat(np.arange(self._trees)[:, np.newaxis], len(rows), axis=1)
        of_tree, everyone = np.arange(self._trees)[:, np.newaxis], np.arange(len(rows))
        while True:
            feature = nodes.feature[node]
            inner = feature >= 0
            if not inner.any():
                return nodes.value[node]
            above = places[of_tree, everyone, np.maximum(feature, 0)] > nodes.threshold[node]
            node = np.where(inner, nodes.child[node] + above, node)

    def predict(self, rows: Matrix) -> Matrix:
        """The mean opinion."""
        mean: Matrix = self.predict_each(rows).mean(axis=0)
        return mean

    def _shuffled(self, rows: Matrix) -> Matrix:
        """Trees x rows x columns, each tree's codes at places of its own."""
        places = np.broadcast_to(rows, (self._trees, *rows.shape))
        if self._order:
            places = places.copy()
            for column, order in self._order.items():
                places[:, :, column] = order[:, rows[:, column].astype(np.int64)]
        return places


def _grow(rows: Matrix, target: Matrix, rng: np.random.Generator, min_leaf: int) -> _Nodes:
    """The trees of samples: trees x rows x columns, and trees x rows."""
    trees, count, columns = rows.shape
    rows, target = rows.reshape(-1, columns), target.reshape(-1)
    group = np.repeat(np.arange(trees), count)  # of a row: its node among those of this level; sorted
    features, thresholds, children, values = [], [], [], []
    born = trees  # nodes so far, this level included
    while len(rows):
        starts = np.flatnonzero(np.diff(group, prepend=-1))
        feature, threshold, value = _split(rows, target, starts, rng, min_leaf)
        splits = feature >= 0
        children.append(np.where(splits, born + 2 * (np.cumsum(splits) - 1), -1))
        features.append(feature)
        thresholds.append(threshold)
        values.append(value)
        going = splits[group]  # rows that move on to the next level
        column, bound = np.maximum(feature, 0)[group], threshold[group]
        above = rows[np.arange(len(rows)), column] > bound
        after = (2 * (np.cumsum(splits) - 1))[group] + above
        order = np.flatnonzero(going)[np.argsort(after[going], kind="stable")]
        rows, target, group = rows[order], target[order], after[order]
        born += 2 * int(splits.sum())
    return _Nodes(
        feature=np.concatenate(features), threshold=np.concatenate(thresholds), child=np.concatenate(children), value=np.concatenate(values)
    )


def _split(
    rows: Matrix, target: Matrix, starts: NDArray[np.int64], rng: np.random.Generator, min_leaf: int
) -> tuple[NDArray[np.int64], Matrix, Matrix]:
    """Of each group: the column whose random threshold removes most variance (-1 for a leaf), that threshold, and the mean target."""
    counts = np.diff(starts, append=len(rows))
    group = np.repeat(np.arange(len(starts)), counts)
    low, high = np.minimum.reduceat(rows, starts), np.maximum.reduceat(rows, starts)
    thresholds = low + rng.random(low.shape) * (high - low)
    below = rows <= thresholds[group]
    mean = np.add.reduceat(target, starts) / counts
    sums = np.add.reduceat((target - mean[group])[:, np.newaxis] * below, starts)
    fewer = np.add.reduceat(below, starts, dtype=np.int64)
    others = counts[:, np.newaxis] - fewer
    varies = np.minimum.reduceat(target, starts) < np.maximum.reduceat(target, starts)
    allowed = (fewer >= min_leaf) & (others >= min_leaf) & (high > low) & varies[:, np.newaxis]
    score = np.where(allowed, sums * sums * counts[:, np.newaxis] / np.maximum(fewer * others, 1), -1.0)
    column = score.argmax(axis=1)
    best = np.arange(len(starts)), column
    return np.where(score[best] >= 0.0, column, -1), thresholds[best], mean
