"""Layers whose time has been measured: measured over predicted for each shape, faded out away from the shapes that were measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from autoscout.simulators.training.arithmetic import Array, log2
from autoscout.simulators.training.constants import TrainingConstants
from autoscout.simulators.training.job import TrainingJob
from autoscout.simulators.training.step import step_time

Vector = NDArray[np.float64]

SHAPE_WIDTH = 0.25
"""Width of a shape's weight, exp(-d^2 / (2 SHAPE_WIDTH^2)) at a distance of d powers of two: nothing is left at a doubling."""
FORMULA_ROWS = 2.0
"""Weight of the formula, in rows: with n rows the log factor is their median times n / (n + FORMULA_ROWS)."""
MAX_LOG_FACTOR = 0.5
"""Bound of the log factor in both directions."""
MIN_SHAPE_ROWS = 4
"""Rows that a shape needs for a factor of its own."""


@dataclass(frozen=True, kw_only=True)
class LayerShapes:
    """Measured over predicted time of one layer, by shape.

    Libraries choose kernels shape by shape, and host time differs with them; the choice is the same in every job that has the shape,
    whatever its depth, pipeline, replicas or batch.
    """

    points: tuple[tuple[float, ...], ...] = ()  # as `shape_point` gives them
    logs: tuple[float, ...] = ()  # logarithm of measured over predicted

    def factor(self, job: TrainingJob) -> Array | None:
        """What the layer's predicted time is multiplied by: 1 away from all shapes; None where none is known."""
        if not self.points:
            return None
        asked = np.stack(np.broadcast_arrays(*shape_point(job)), axis=-1)
        shape, flat = asked.shape[:-1], asked.reshape(-1, asked.shape[-1])
        away = (flat**2).sum(1)[:, None] + self._squares[None, :] - 2.0 * flat @ self._points.T
        weight = np.exp(-np.maximum(away, 0.0) / (2.0 * SHAPE_WIDTH**2))
        logs = weight @ self._logs / np.maximum(1.0, weight.sum(axis=1))
        return np.exp(logs).reshape(shape)

    @cached_property
    def _points(self) -> Vector:
        return np.array(self.points)

    @cached_property
    def _squares(self) -> Vector:
        return np.asarray((self._points**2).sum(axis=1))

    @cached_property
    def _logs(self) -> Vector:
        return np.array(self.logs)


PLACE = ("layer_params", "tokens", "sequence", "tp", "flops", "gemm_flops", "experts", "recompute")
"""Names of what `shape_point` gives."""


def shape_point(job: TrainingJob) -> tuple[Array, ...]:
    """What one layer's time on one rank depends on, in powers of two."""
    per_layer = job.attention_params + job.ffn_matrices * job.hidden * job.ffn
    lay = job.layout
    experts = 1.0 + job.experts
    return (
        log2(per_layer),
        log2(job.tokens),
        log2(job.sequence),
        log2(lay.tp),
        log2(job.flops),
        log2(job.gemm_flops),
        log2(experts),
        lay.recompute + lay.selective,
    )


def learn_shapes(parts: Sequence[tuple[TrainingJob, Vector]], constants: TrainingConstants) -> LayerShapes:
    """Learn factors from measured step times: what the rest of the step does not explain is attributed to the layer."""
    shape_points, logs = [], []
    for job, step_s in parts:
        plain_s = step_time(job, constants).total_s
        layers_s = np.maximum((step_time(job, constants, 1.02).total_s - plain_s) / 0.02, 1e-12)
        factors = np.maximum(1.0 + (step_s - plain_s) / layers_s, 0.05)
        shape_points.append(np.stack(np.broadcast_arrays(*shape_point(job), step_s)[:-1], axis=-1))
        logs.append(np.broadcast_to(np.log(factors), step_s.shape))
    rows, values = np.round(np.concatenate(shape_points), 2), np.concatenate(logs)
    shapes, which = np.unique(rows, axis=0, return_inverse=True)
    points, means = [], []
    for number, shape in enumerate(shapes):
        mine = values[np.ravel(which) == number]
        if len(mine) < MIN_SHAPE_ROWS:
            continue
        log = float(np.median(mine)) * len(mine) / (len(mine) + FORMULA_ROWS)
        points.append(tuple(shape.tolist()))
        means.append(float(np.clip(np.round(log, 4), -MAX_LOG_FACTOR, MAX_LOG_FACTOR)))
    return LayerShapes(points=tuple(points), logs=tuple(means))


__all__ = ["PLACE", "LayerShapes", "learn_shapes"]
