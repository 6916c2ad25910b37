"""Extremely randomised trees, all grown together level by level so that a forest of a few hundred rows takes milliseconds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from autoscout.space.encode import Codes, Encoder, Floats

LEVELS = 10


class Forest:
    """Trees on the positions of the knobs; categories are shuffled anew in every tree, so that a cut can part them in any way."""

    def __init__(self, encoder: Encoder, trees: int, rng: np.random.Generator, tries: int = 3) -> None:
        self._encoder = encoder
        self._trees = trees
        self._rng = rng
        self._tries = tries
        self._orders = [
            None if encoder.ordered[index] else np.stack([rng.permutation(int(size) + 1) for _ in range(trees)])
            for index, size in enumerate(encoder.sizes)
        ]
        self._feature: list[NDArray[np.int64]] = []
        self._cut: list[Floats] = []
        self._child: list[NDArray[np.int64]] = []
        self._values: list[Floats] = []

    def _columns(self, codes: Codes) -> Floats:
        """[tree, row, knob]"""
        columns = np.broadcast_to(codes.astype(np.float64), (self._trees, *codes.shape)).copy()
        for index, orders in enumerate(self._orders):
            if orders is not None:
                columns[:, :, index] = orders[:, codes[:, index]]
        return columns

    def fit(self, codes: Codes, targets: Floats) -> None:
        """Grow until leaves are pure, hold one row, or `LEVELS` is reached."""
        rng, n, d = self._rng, len(codes), codes.shape[1]
        columns = self._columns(codes).reshape(-1, d)
        values = np.tile(targets, self._trees)
        node = np.repeat(np.arange(self._trees), n)
        count = self._trees
        self._feature, self._cut, self._child, self._values = [], [], [], []
        for _ in range(LEVELS):
            sizes = np.maximum(np.bincount(node, minlength=count), 1)
            self._values.append(np.bincount(node, values, count) / sizes)
            order = np.argsort(node, kind="stable")
            feature, cut = self._split(columns[order], values[order], node[order], count, d, rng)
            right = columns[np.arange(len(node)), feature[node]] > cut[node]
            split = np.isfinite(cut)
            child = np.where(split, np.cumsum(split) * 2 - 2, -1)
            self._feature.append(feature)
            self._cut.append(cut)
            self._child.append(child)
            keep = split[node]
            if not keep.any():
                break
            node = (child[node] + right)[keep]
            columns, values = columns[keep], values[keep]
            count = int(2 * split.sum())
        else:
            sizes = np.maximum(np.bincount(node, minlength=count), 1)
            self._values.append(np.bincount(node, values, count) / sizes)
            self._feature.append(np.zeros(count, dtype=np.int64))
            self._cut.append(np.full(count, np.inf))
            self._child.append(np.full(count, -1))

    def _split(
        self, columns: Floats, values: Floats, node: NDArray[np.int64], count: int, d: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], Floats]:
        """For every node the best of a few random cuts; an infinite cut where none parts its rows."""
        present, starts = np.unique(node, return_index=True)
        total = np.add.reduceat(values, starts)
        sizes = np.diff([*starts, len(node)])
        inside = np.repeat(np.arange(len(present)), sizes)
        low_target, high_target = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
        lows, highs = np.minimum.reduceat(columns, starts, axis=0), np.maximum.reduceat(columns, starts, axis=0)
        varies = highs > lows
        best = np.full(len(present), -np.inf)
        best_feature = np.zeros(len(present), dtype=np.int64)
        best_cut = np.full(len(present), np.inf)
        rows = np.arange(len(present))
        for _ in range(self._tries):
            feature = np.argmax(np.where(varies, rng.random((len(present), d)), -1.0), axis=1)
            low, high = lows[rows, feature], highs[rows, feature]
            # Halfway cuts between neighbouring positions: a cut on a position itself would leave one side empty at the top.
            cut = np.floor(low + rng.random(len(present)) * (high - low)) + 0.5
            left = columns[np.arange(len(node)), feature[inside]] <= cut[inside]
            left_sum = np.add.reduceat(values * left, starts)
            left_size = np.add.reduceat(left.astype(np.float64), starts)
            right_size = sizes - left_size
            with np.errstate(divide="ignore", invalid="ignore"):
                score = left_sum**2 / left_size + (total - left_sum) ** 2 / right_size
            score = np.where((left_size > 0) & (right_size > 0) & (high > low), score, -np.inf)
            better = score > best
            best = np.where(better, score, best)
            best_feature = np.where(better, feature, best_feature)
            best_cut = np.where(better, cut, best_cut)
        stop = (sizes < 2) | (high_target - low_target < 1e-12)
        feature_of, cut_of = np.zeros(count, dtype=np.int64), np.full(count, np.inf)
        feature_of[present] = best_feature
        cut_of[present] = np.where(stop, np.inf, best_cut)
        return feature_of, cut_of

    def predict(self, codes: Codes) -> tuple[Floats, Floats]:
        """Mean and standard deviation over the trees."""
        n, d = codes.shape
        columns = self._columns(codes).reshape(-1, d)
        node = np.repeat(np.arange(self._trees), n)
        answer = np.zeros(len(node))
        at = np.arange(len(node))
        for feature, cut, child, values in zip(self._feature, self._cut, self._child, self._values, strict=True):
            answer[at] = values[node]
            inner = child[node] >= 0
            if not inner.any():
                break
            at, node = at[inner], node[inner]
            node = child[node] + (columns[at, feature[node]] > cut[node])
        by_tree = answer.reshape(self._trees, n)
        return by_tree.mean(0), by_tree.std(0)
