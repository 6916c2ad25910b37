"""Which knobs mattered: a forest fitted to the trials, judged on trials it has not seen.

A knob's share is the estimated part of the variation of the (log) objective that goes away when the knob is fixed: the
total-effect index of Sobol, estimated by permutation. Shuffling the knob among unseen trials raises the squared error by
twice that part. Shares of knobs that interact overlap, so they may sum to more than one. Uncertainty: the delete-d
jackknife over trials. Failures are left out, since they have no value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscout.analysis.curves import ordered
from autoscout.analysis.labels import KnobNote
from autoscout.common.forest import Forest, ForestEncoder, Matrix
from autoscout.core.config import Config, Value
from autoscout.core.seeds import stream
from autoscout.core.task import Task
from autoscout.core.trial import Fidelity, Trial

MIN_CONFIGS = 10
"""Below this many different configurations that ran, nothing is said about importance."""
MIN_FIT = 0.05
"""Share of the variation of unseen trials that the model must explain before its ranking means anything."""

_MAX_CONFIGS = 400  # enough for stable shares; keeps a report of a huge study under a few seconds
_REPLICATES = 12
_KEPT = 0.8
_TREES = 24
_SHUFFLES = 4
_NORMAL_95 = 1.645


@dataclass(frozen=True, kw_only=True)
class KnobShare:
    """How much of the variation one knob accounts for, with a 90 % interval."""

    name: str
    share: float
    low: float
    high: float

    @property
    def certain(self) -> bool:
        """Whether it surely matters."""
        return self.low > 0.0

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True, kw_only=True)
class Importance:
    """Importance of all knobs that varied, largest first.

    Attributes:
        knobs: Empty when `is_known` is false.
        unvaried: Knobs that took one value only; nothing can be said about them.
        fit: Part of the variation of unseen trials that the model explains (R squared; may be negative).
        configs: How many different configurations it learned from.
        note: Why nothing is known, or a warning; empty when all is well.
    """

    knobs: tuple[KnobShare, ...]
    unvaried: tuple[str, ...]
    fit: float
    configs: int
    note: str = ""

    @property
    def is_known(self) -> bool:
        return bool(self.knobs)

    def to_json(self) -> dict[str, Any]:
        return {
            "knobs": [knob.to_json() for knob in self.knobs],
            "unvaried": list(self.unvaried),
            "fit": self.fit,
            "configs": self.configs,
            "note": self.note,
        }


def knob_importance(task: Task, trials: Sequence[Trial], seed: int = 0) -> Importance:
    """Estimate the importance of every knob from the trials of the highest fidelity present."""
    observed = observations(task, trials)
    rng = stream(seed, "report", "importance")
    configs = list(observed)
    if len(configs) > _MAX_CONFIGS:
        configs = [configs[i] for i in sorted(rng.choice(len(configs), _MAX_CONFIGS, replace=False))]
    encoder = ForestEncoder(configs)
    varied = encoder.varied(configs)
    unvaried = tuple(name for name, moves in zip(encoder.names, varied, strict=True) if not moves)
    if len(configs) < MIN_CONFIGS:
        note = f"too few trials: {len(configs)} different configurations ran, {MIN_CONFIGS} are needed"
        return Importance(knobs=(), unvaried=unvaried, fit=0.0, configs=len(configs), note=note)
    target = response([observed[config] for config in configs])
    if np.ptp(target) == 0.0 or not varied.any():
        return Importance(knobs=(), unvaried=unvaried, fit=0.0, configs=len(configs), note="all configurations measured the same")
    rows, active = encoder.encode(configs), encoder.active(configs)
    shares, fits = _replicate(rows, active, varied, target, encoder.categorical, rng)
    centre_share = shares.mean(axis=0)
    # Delete-d jackknife: replicates that keep most of the trials vary less than fresh studies would.
    spread = shares.std(axis=0, ddof=1) * np.sqrt(_KEPT / (1.0 - _KEPT))
    knobs = [
        KnobShare(
            name=name,
            share=_part(centre_share[column]),
            low=_part(centre_share[column] - _NORMAL_95 * spread[column]),
            high=_part(centre_share[column] + _NORMAL_95 * spread[column]),
        )
        for column, name in enumerate(encoder.names)
        if varied[column]
    ]
    fit = float(fits.mean())
    note = "" if fit >= MIN_FIT else "the model cannot predict unseen trials: noise, or too few trials; do not trust this ranking"
    ranked = tuple(sorted(knobs, key=lambda knob: (-knob.share, -knob.high, knob.name)))
    return Importance(knobs=ranked, unvaried=unvaried, fit=fit, configs=len(configs), note=note)


def varied_knobs(trials: Sequence[Trial], knobs: Sequence[KnobNote], importance: Importance | None) -> list[str]:
    """Knobs that took more than one value (being inactive is one), the important ones first, then as declared."""
    values: dict[str, set[tuple[type, Value]]] = {}
    held: Counter[str] = Counter()
    configs = {trial.config for trial in trials}
    for config in configs:
        settings = config.to_json()
        held.update(settings.keys())
        for name, setting in settings.items():
            values.setdefault(name, set()).add((setting.__class__, setting))
    everywhere = {name for name, count in held.items() if count == len(configs)}
    order = [*(knob.name for knob in knobs if knob.name in values), *values]
    moving = [name for name in dict.fromkeys(order) if len(values[name]) + (name not in everywhere) > 1]
    ranked = [knob.name for knob in importance.knobs] if importance else []
    return [name for name in ranked if name in moving] + [name for name in moving if name not in ranked]


def observations(task: Task, trials: Sequence[Trial]) -> dict[Config, float]:
    """The median objective of each configuration that ran, at the highest fidelity present."""
    answers = [(trial.config, trial.measurement, task.objective.value(trial.measurement)) for trial in ordered(trials)]
    fidelity = max((answer.fidelity for _, answer, value in answers if value is not None), default=Fidelity.MEASURED)
    gathered: dict[Config, list[float]] = {}
    for config, answer, value in answers:
        if value is not None and answer.fidelity is fidelity:
            gathered.setdefault(config, []).append(value)
    return {config: median(values) if len(values) > 1 else values[0] for config, values in gathered.items()}


def response(values: Sequence[float]) -> Matrix:
    """What the model learns: logarithms, because gains are ratios; plain values where some are not positive."""
    array = np.asarray(values, dtype=float)
    return np.log(array) if np.all(array > 0) else array


def _part(value: float) -> float:
    return float(min(1.0, max(0.0, value)))


def _replicate(
    rows: Matrix,
    active: NDArray[np.bool_],
    varied: NDArray[np.bool_],
    target: Matrix,
    categorical: NDArray[np.bool_],
    rng: np.random.Generator,
) -> tuple[Matrix, Matrix]:
    """Shares (replicates x knobs) and fits of forests that each see most of the trials."""
    shares = np.zeros((_REPLICATES, rows.shape[1]))
    fits = np.zeros(_REPLICATES)
    for replicate in range(_REPLICATES):
        sample = rng.choice(len(rows), max(5, round(_KEPT * len(rows))), replace=False)
        forest = Forest(rows[sample], target[sample], categorical, rng, trees=_TREES)
        variance = float(target[sample].var()) or 1.0
        base = _unseen_error(forest, rows[sample], target[sample])
        fits[replicate] = 1.0 - base / variance
        for column in np.flatnonzero(varied):
            members = np.flatnonzero(active[sample, column])
            shuffled = [_shuffled(rows[sample], int(column), members, rng) for _ in range(_SHUFFLES)]
            error = np.mean([_unseen_error(forest, changed, target[sample]) for changed in shuffled])
            shares[replicate, column] = (error - base) / (2.0 * variance)
    return shares, fits


def _shuffled(rows: Matrix, column: int, members: NDArray[np.int64], rng: np.random.Generator) -> Matrix:
    """Rows with one knob shuffled among those that hold it; elsewhere it has no value to exchange."""
    changed = rows.copy()
    changed[members, column] = rows[rng.permutation(members), column]
    return changed


def _unseen_error(forest: Forest, rows: Matrix, target: Matrix) -> float:
    """Mean squared error of each row's mean opinion among the trees that have not seen it."""
    weight = forest.outside.sum(axis=0)
    judged = weight > 0
    opinion = (forest.predict_each(rows) * forest.outside).sum(axis=0)[judged] / weight[judged]
    return float(np.mean((opinion - target[judged]) ** 2))
