"""Gradient-boosted regression trees in numpy: small data, many predictions, no other package."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class TreeOptions:
    """Size of the ensemble."""

    rounds: int = 150
    depth: int = 4
    rate: float = 0.1
    bins: int = 32
    min_leaf: int = 3
    ridge: float = 1.0


class BoostedTrees:
    """Complete binary trees of one depth, stored as arrays so that all trees answer at once."""

    def __init__(self, options: TreeOptions | None = None) -> None:
        self.options = options or TreeOptions()
        self._base = 0.0
        inner, leaves = 2**self.options.depth - 1, 2**self.options.depth
        self._feature = np.zeros((0, inner), dtype=np.intp)
        self._threshold = np.zeros((0, inner))
        self._leaf = np.zeros((0, leaves))

    def fit(self, inputs: Matrix, target: NDArray[np.float64]) -> BoostedTrees:
        """Least-squares boosting; deterministic."""
        options = self.options
        edges = [_edges(inputs[:, column], options.bins) for column in range(inputs.shape[1])]
        width = max((len(cut) for cut in edges), default=0) + 1
        binned = np.stack([np.searchsorted(cut, inputs[:, column]) for column, cut in enumerate(edges)], axis=1)
        self._base = float(target.mean())
        current = np.full(len(target), self._base)
        features, thresholds, leaves = [], [], []
        for _ in range(options.rounds):
            feature, threshold, leaf, where = self._grow(binned, edges, width, target - current)
            current += options.rate * leaf[where]
            features.append(feature)
            thresholds.append(threshold)
            leaves.append(options.rate * leaf)
        self._feature, self._threshold, self._leaf = np.array(features), np.array(thresholds), np.array(leaves)
        return self

    def predict(self, inputs: Matrix) -> NDArray[np.float64]:
        """One value per row."""
        if not len(self._feature):
            return np.full(len(inputs), self._base)
        out = np.empty(len(inputs))
        trees = np.arange(len(self._feature))
        for begin in range(0, len(inputs), 512):
            part = inputs[begin : begin + 512]
            rows = np.arange(len(part))[:, None]
            node = np.zeros((len(part), len(trees)), dtype=np.intp)
            for _ in range(self.options.depth):
                right = part[rows, self._feature[trees, node]] > self._threshold[trees, node]
                node = 2 * node + 1 + right
            out[begin : begin + 512] = self._leaf[trees, node - self._feature.shape[1]].sum(axis=1)
        return out + self._base

    def _grow(
        self, binned: NDArray[np.intp], edges: list[NDArray[np.float64]], width: int, residual: NDArray[np.float64]
    ) -> tuple[NDArray[np.intp], NDArray[np.float64], NDArray[np.float64], NDArray[np.intp]]:
        options = self.options
        rows, columns = binned.shape
        feature = np.zeros(2**options.depth - 1, dtype=np.intp)
        threshold = np.full(2**options.depth - 1, np.inf)
        where = np.zeros(rows, dtype=np.intp)  # node within its level
        offsets = np.arange(columns) * width
        for level in range(options.depth):
            nodes = 2**level
            flat = (where[:, None] * columns * width + offsets[None, :] + binned).ravel()
            size = nodes * columns * width
            counts = np.bincount(flat, minlength=size).reshape(nodes, columns, width).astype(float)
            sums = np.bincount(flat, weights=np.repeat(residual, columns), minlength=size).reshape(nodes, columns, width)
            left_n, left_s = counts.cumsum(axis=2), sums.cumsum(axis=2)
            all_n, all_s = left_n[:, :, -1:], left_s[:, :, -1:]
            gain = left_s**2 / (left_n + options.ridge) + (all_s - left_s) ** 2 / (all_n - left_n + options.ridge)
            gain = gain - all_s**2 / (all_n + options.ridge)
            gain[(left_n < options.min_leaf) | (all_n - left_n < options.min_leaf)] = -np.inf
            best = gain.reshape(nodes, -1).argmax(axis=1)
            worth = gain.reshape(nodes, -1)[np.arange(nodes), best] > 1e-12
            column, cut = np.divmod(best, width)
            first = nodes - 1
            feature[first : first + nodes] = np.where(worth, column, 0)
            threshold[first : first + nodes] = [
                edges[col][position] if good else np.inf for col, position, good in zip(column, cut, worth, strict=True)
            ]
            right = worth[where] & (binned[np.arange(rows), column[where]] > cut[where])
            where = 2 * where + right
        leaves = 2**options.depth
        count, total = np.bincount(where, minlength=leaves), np.bincount(where, weights=residual, minlength=leaves)
        return feature, threshold, total / (count + options.ridge), where


def _edges(values: NDArray[np.float64], bins: int) -> NDArray[np.float64]:
    """Cut points between distinct values, at most `bins - 1`."""
    distinct = np.unique(values)
    middle = (distinct[1:] + distinct[:-1]) / 2.0
    if len(middle) >= bins:
        middle = np.unique(np.quantile(values, np.linspace(0, 1, bins + 1)[1:-1]))
    return np.asarray(middle, dtype=np.float64)


__all__ = ["BoostedTrees", "TreeOptions"]
