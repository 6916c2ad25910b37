"""Fitting the training model to tables: few constants, bounded by physics, judged by grouped cross-validation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autoscout.common.stats import folds, mape, spread_of
from autoscout.core.errors import ConfigError, Fault
from autoscout.learning.fit import fit_positive
from autoscout.simulators.training.calibration import TrainingCalibration, features, save_calibration, training_calibration
from autoscout.simulators.training.constants import TrainingConstants
from autoscout.simulators.training.job import TrainingJob
from autoscout.simulators.training.memory import MemoryConstants
from autoscout.simulators.training.read import rows_of
from autoscout.simulators.training.shapes import LayerShapes, learn_shapes
from autoscout.simulators.training.step import step_time
from autoscout.simulators.training.tables import TrainingTable, read_training_table

BOUNDS: dict[str, tuple[float, float]] = {
    "gemm_scale": (0.5, 1.15),
    "unaligned_cost": (0.05, 4.0),
    "tile_half": (0.005, 0.5),
    "layer_gap_s": (1e-6, 6e-4),
    "reduced_share": (0.1, 1.0),
    "attention_share": (0.15, 0.75),
    "score_passes": (3.0, 20.0),
    "element_bytes": (8.0, 80.0),
    "norm_bytes": (10.0, 300.0),
    "layer_host_s": (1e-5, 5e-3),
    "host_skew": (1e-4, 0.05),
    "micro_host_s": (1e-5, 2e-3),
    "head_host_s": (1e-5, 1e-2),
    "step_host_s": (1e-3, 0.1),
    "bus_scale": (0.3, 1.1),
    "nic_share": (0.15, 1.0),
    "nic_latency_s": (2e-6, 1e-4),
    "ring_share": (0.01, 1.0),
    "dp_overlap": (0.01, 1.0),
    "tp_overlap": (0.05, 1.0),
    "shard_overlap": (0.05, 1.0),
    "optimizer_bytes": (24.0, 90.0),
    "expert_share": (0.1, 1.0),
    "expert_host_s": (1e-6, 5e-3),
}
"""Bounds of each constant, in its own unit: outside them it would make up for an error elsewhere in the model."""

MAX_ERROR_RATIO = 0.9
"""Factors of layer shapes are used when the error on unseen workloads with them is below this share of the error without."""

ROWS_PER_TABLE = 50.0
"""What every table counts as, however many rows it has."""
SLOPE_STEP = 0.01
ALONE_SHARE = 0.9
"""Share of what all sources say of a constant from which one counts as the only one."""

START = TrainingConstants(dp_overlap=0.3, element_bytes=25.0, expert_host_s=1.8e-3, layer_host_s=6e-4)
"""Where a fit begins. Runs of MoE models tell only the sum of both host times; their layers launch some four times the kernels of a
dense one (routing, permuting, two grouped products, shared experts)."""


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """A calibration with its out-of-fold predictions, table by table."""

    calibration: TrainingCalibration
    predicted_s: tuple[NDArray[np.float64], ...]
    formula_s: tuple[NDArray[np.float64], ...]  # the same without factors of layer shapes


def fit_constants(tables: Sequence[TrainingTable], names: Sequence[str], start: TrainingConstants = START) -> TrainingConstants:
    """Fit the named constants to all tables at once; every table counts the same, however many rows it has."""
    unknown = [name for name in names if name not in BOUNDS]
    if unknown:
        rule = f"not a constant; there are: {', '.join(BOUNDS)}"
        raise ConfigError([Fault(where="calibrate", value=name, rule=rule) for name in unknown])
    parts = _parts(tables)
    begin = np.array([np.clip(getattr(start, name), *BOUNDS[name]) for name in names])

    def residual(values: NDArray[np.float64]) -> NDArray[np.float64]:
        constants = replace(start, **dict(zip(names, values.tolist(), strict=True)))
        errors = [
            np.log(step_time(job, constants).total_s / step_s) * np.sqrt(ROWS_PER_TABLE / len(step_s))
            for job, step_s in parts
            if len(step_s)
        ]
        return np.concatenate(errors)

    low, high = (np.array([BOUNDS[name][side] for name in names]) for side in (0, 1))
    values = fit_positive(residual, begin, low=low, high=high)
    return replace(start, **{name: float(f"{value:.4g}") for name, value in zip(names, values.tolist(), strict=True)})


def evidence(tables: Sequence[TrainingTable], constants: TrainingConstants, names: Sequence[str]) -> dict[str, dict[str, float]]:
    """What each table says of each constant: its share of all squared changes of predicted times, every table counting the same."""
    errors: dict[str, dict[str, float]] = {}
    parts = [(table.name, job) for table, (job, step_s) in zip(tables, _parts(tables), strict=True) if len(step_s)]
    plain = [np.log(step_time(job, constants).total_s) for _, job in parts]
    for name in names:
        more = replace(constants, **{name: getattr(constants, name) * (1.0 + SLOPE_STEP)})
        squares = [
            float(np.mean((np.log(step_time(job, more).total_s) - before) ** 2)) for (_, job), before in zip(parts, plain, strict=True)
        ]
        whole = sum(squares)
        errors[name] = {table: square / whole for (table, _), square in zip(parts, squares, strict=True) if whole and square > 0.01 * whole}
    return errors


def is_alone(shares: Mapping[str, float]) -> bool:
    """Whether one table says nearly all that is known of a constant."""
    return max(shares.values(), default=0.0) >= ALONE_SHARE


def calibrate(
    tables: Sequence[TrainingTable],
    names: Sequence[str],
    *,
    name: str,
    made_from: str,
    start: TrainingConstants = START,
    memory: MemoryConstants | None = None,
    assumes: Mapping[str, float] | None = None,
    spread: float = 0.3,
    fold_count: int = 5,
) -> Fitted:
    """Fit, and measure the error on workloads that the fit has not seen; one workload alone keeps `spread` and has no error.

    Factors of measured layer shapes are kept where they make the error on unseen workloads smaller by at least a tenth.
    """
    constants = fit_constants(tables, names, start)
    plain, shaped = ([np.full(len(table.step_s), np.nan) for table in tables] for _ in range(2))
    masks = _masks(tables, fold_count)
    for fold in range(fold_count):
        held = [mask[fold] if fold < len(mask) else np.zeros(len(table.step_s), bool) for mask, table in zip(masks, tables, strict=True)]
        others = [_without(table, mask) for table, mask in zip(tables, held, strict=True)]
        others = [table for table in others if np.isfinite(table.step_s).any()]
        if not others:
            continue
        unseen = fit_constants(others, names, start)
        shapes = learn_shapes(_parts(others), unseen)
        for table, mask, one, other in zip(tables, held, plain, shaped, strict=True):
            if mask.any():
                job, count = rows_of(table.job, mask), (int(mask.sum()),)
                one[mask] = np.broadcast_to(step_time(job, unseen).total_s, count)
                other[mask] = np.broadcast_to(step_time(job, unseen, shapes.factor(job)).total_s, count)
    use = _error(shaped, tables) < MAX_ERROR_RATIO * _error(plain, tables)
    predicted = shaped if use else plain
    ratios = _ratios(predicted, tables)
    judged = len(ratios) > 0
    calibration = TrainingCalibration(
        name=name,
        constants=constants,
        memory=memory or MemoryConstants(),
        shapes=learn_shapes(_parts(tables), constants) if use else LayerShapes(),
        spread=_stated_spread(tables, names, start, plain) if judged else spread,
        made_from=made_from,
        rows=len(ratios) if judged else sum(int(np.isfinite(table.step_s).sum()) for table in tables),
        mape=float(np.round(mape(ratios, np.ones_like(ratios)), 3)) if judged else None,
        assumes=dict(assumes or {}),
        ranges=_ranges(tables),
        evidence=evidence(tables, constants, names),
    )
    return Fitted(calibration=calibration, predicted_s=tuple(predicted), formula_s=tuple(plain))


def _stated_spread(
    tables: Sequence[TrainingTable], names: Sequence[str], start: TrainingConstants, plain: Sequence[NDArray[np.float64]]
) -> float:
    """Spread of errors on unseen tables: each is predicted by constants of the others, all counting the same; a lone table by workload.

    Without factors of layer shapes: most shapes that are asked for were not measured.
    """
    parts = []
    for index, table in enumerate(tables):
        others = [other for other in tables if other is not table]
        guess = plain[index]
        if others:
            guess = np.broadcast_to(step_time(table.job, fit_constants(others, names, start)).total_s, table.step_s.shape)
        errors = np.log(guess / table.step_s)
        parts.append(errors[np.isfinite(errors)])
    most = max(len(part) for part in parts)
    return spread_of(np.concatenate([np.resize(part, most) for part in parts if len(part)]))


def _parts(tables: Sequence[TrainingTable]) -> list[tuple[TrainingJob, NDArray[np.float64]]]:
    """Rows that ran, table by table."""
    return [(rows_of(table.job, np.isfinite(table.step_s)), table.step_s[np.isfinite(table.step_s)]) for table in tables]


def _ratios(predicted: Sequence[NDArray[np.float64]], tables: Sequence[TrainingTable]) -> NDArray[np.float64]:
    """Predicted over measured, of all rows that ran."""
    ratios = np.concatenate([out / table.step_s for out, table in zip(predicted, tables, strict=True)])
    return np.asarray(ratios[np.isfinite(ratios)])


def _error(predicted: Sequence[NDArray[np.float64]], tables: Sequence[TrainingTable]) -> float:
    """Mean of the tables' mean absolute log errors: each counts the same, as in the fit."""
    errors = [np.abs(np.log(out / table.step_s)) for out, table in zip(predicted, tables, strict=True)]
    means = [float(error[np.isfinite(error)].mean()) for error in errors if np.isfinite(error).any()]
    return float(np.mean(means)) if means else math.inf


def _masks(tables: Sequence[TrainingTable], count: int) -> list[list[NDArray[np.bool_]]]:
    """Held-out rows by table and fold; tables of one workload each are split together."""
    if any(len(set(table.groups)) > 1 for table in tables):
        return [folds(table.groups, count) for table in tables]
    ends = np.cumsum([len(table.groups) for table in tables])[:-1]
    together = [np.split(mask, ends) for mask in folds([group for table in tables for group in table.groups], count)]
    return [[parts[index] for parts in together] for index in range(len(tables))]


def calibrate_tables(
    paths: Sequence[Path], names: Sequence[str], *, name: str, stack: str, columns: Mapping[str, str], out: Path
) -> tuple[TrainingCalibration, tuple[str, ...]]:
    """Read tables, fit the named constants beginning at those of a shipped calibration, and write the result.

    The second part of the answer names rows that were left out.
    """
    begin = training_calibration(stack)
    tables = [read_training_table(path, columns=columns) for path in paths]
    made_from = ", ".join(f"{path.name} ({len(table.rows)} rows)" for path, table in zip(paths, tables, strict=True))
    calibration = calibrate(
        tables,
        names,
        name=name,
        made_from=made_from,
        start=begin.constants,
        memory=begin.memory,
        assumes=begin.assumes,
        spread=begin.spread,
    ).calibration
    save_calibration(calibration, out)
    return calibration, tuple(row for table in tables for row in table.left_out)


def _without(table: TrainingTable, mask: NDArray[np.bool_]) -> TrainingTable:
    groups = [group for group, out in zip(table.groups, mask, strict=True) if not out]
    rows = [row for row, out in zip(table.rows, mask, strict=True) if not out]
    return replace(
        table, job=rows_of(table.job, ~mask), step_s=table.step_s[~mask], groups=groups, rows=rows, peak_bytes=table.peak_bytes[~mask]
    )


def _ranges(tables: Sequence[TrainingTable]) -> dict[str, tuple[float, float]]:
    columns: dict[str, list[NDArray[np.float64]]] = {}
    for table in tables:
        for name, value in features(table.job).items():
            columns.setdefault(name, []).append(np.broadcast_to(value, table.step_s.shape))
    return {name: (float(min(part.min() for part in parts)), float(max(part.max() for part in parts))) for name, parts in columns.items()}


__all__ = ["BOUNDS", "START", "Fitted", "calibrate", "calibrate_tables", "evidence", "fit_constants", "is_alone"]
