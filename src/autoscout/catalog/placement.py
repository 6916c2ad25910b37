"""Layouts of a training job on GPUs of several kinds: which kind holds which layers and gets which micro-batches.

Ranks fill the kinds in the cluster's order: tensor- and context-parallel ranks are neighbours, then replicas, then stages (with
`stages_inner` stages, then replicas). A share for each kind (1 for the first, 0.5 = half of its work) balances both splits: layers go to
stages in proportion to the shares of their GPUs, micro-batches to replicas in proportion to the pace that their slowest stage then has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Kinds of GPU, layers and micro-batches of one layout; replicas on the same kinds are one column.

    `kinds`: number of the kind by stage and column; `layers` by stage; `micro_batches` (the most of any) and `replicas` by column.
    `whole`: no group of tensor- or context-parallel ranks has GPUs of two kinds.
    """

    kinds: NDArray[np.intp]
    layers: Vector
    micro_batches: Vector
    replicas: Vector
    whole: bool

    @cached_property
    def has_mixed_neighbours(self) -> bool:
        """Whether neighbouring stages are on different kinds: nodes have GPUs of one kind, so the network carries what is sent."""
        return bool((self.kinds[1:] != self.kinds[:-1]).any())

    @cached_property
    def together(self) -> float:
        """Copies of a shard that surely share a kind: of the kind with the fewest, where a stage has several; endless otherwise."""
        copies = [np.inf]
        for stage in self.kinds:
            used = np.unique(stage)
            if len(used) > 1:
                copies += [float(self.replicas[stage == kind].sum()) for kind in used]
        return min(copies)

    def stages(self, kind: int) -> tuple[float, float, float]:
        """(layers of the largest stage of a kind, stages before its first, 1 if it has the last); layers are 0 where it has none."""
        (held,) = np.nonzero((self.kinds == kind).any(axis=1))
        if not len(held):
            return 0.0, 0.0, 0.0
        return float(self.layers[held].max()), float(held[0]), float(held[-1] == len(self.layers) - 1)


def split(total: float, weights: Vector) -> Vector:
    """Whole parts of `total` in proportion to the weights, each at least 1 where there is enough for all.

    >>> split(28, np.array([1.0, 1.0, 0.5])).tolist(), split(10, np.array([1.0, 1.0, 1.0])).tolist()
    ([11.0, 11.0, 6.0], [4.0, 3.0, 3.0])
    """
    exact = total * weights / weights.sum()
    parts = np.floor(exact + 1e-9)
    if total >= len(weights):
        parts = np.maximum(parts, 1.0)
    rest = round(total - float(parts.sum()))
    parts[np.argsort(parts - exact, kind="stable")[: max(0, rest)]] += 1.0
    for _ in range(-rest):  # what lifted small parts to 1 is taken from those that have too much
        parts[np.argmax(np.where(parts > 1.0, parts - exact, -np.inf))] -= 1.0
    return np.asarray(parts, dtype=np.float64)


def place(layout: Mapping[str, float], counts: Vector, shares: Vector, layers: float, micro_batches: float) -> Placement:
    """Put one layout (`tp`, `pp`, `dp`, `cp`, `virtual_stages`, `stages_inner`) on as many GPUs of each kind."""
    stages, replicas, unit = int(layout["pp"]), int(layout["dp"]), int(layout["tp"] * layout["cp"])
    ends = np.cumsum(counts)
    borders = [int(end // unit) for end in ends[:-1] if end < stages * replicas * unit]  # cells before which a kind begins
    if layout["stages_inner"]:
        turns = {0, *(border // stages for border in borders), *(-(-border // stages) for border in borders)}
    else:
        turns = {0, *(border % replicas for border in borders)}
    columns = np.array(sorted(turn for turn in turns if turn < replicas))  # replicas that differ from the one before
    alike = np.diff([*columns, replicas])
    cells = np.arange(stages)[:, None] + columns * stages if layout["stages_inner"] else np.arange(stages)[:, None] * replicas + columns
    kinds = np.minimum(np.searchsorted(ends, cells * unit, side="right"), len(counts) - 1)
    chunks = layout["virtual_stages"]
    held = split(layers / chunks, (shares[kinds] * alike).sum(axis=1) / replicas) * chunks
    paces = (shares[kinds] / np.maximum(held, 1.0)[:, None]).min(axis=0)
    batches = split(micro_batches, np.repeat(paces, alike))
    return Placement(
        kinds=kinds,
        layers=held,
        micro_batches=np.maximum.reduceat(batches, columns),
        replicas=alike.astype(np.float64),
        whole=all(end % unit == 0 for end in ends[:-1] if end < stages * replicas * unit),
    )


__all__ = ["Placement", "place", "split"]
