"""What a user's own studies say of a simulator: one factor per GPU and software, from the measured trials of each study."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from autoscout.catalog.gpus import cluster, gpu
from autoscout.common.document import load_json
from autoscout.core.errors import ConfigError
from autoscout.core.protocols import Simulator
from autoscout.core.task import Direction, Task
from autoscout.core.trial import Fidelity, Trial

FILE = "calibration.json"
"""File in the result folder of each study."""
SHIPPED_STUDIES = 0.3  # weight of the shipped constants, in studies
MIN_CONFIGURATIONS = 3  # measured configurations that a study needs to say anything


@dataclass(frozen=True, kw_only=True)
class LocalFit:
    """One study: how long things took there, as a multiple of what the shipped constants say."""

    study: str
    simulator: str
    gpu: str
    system: str
    trials: int
    log_factor: float  # median of the logarithms of measured over predicted time
    log_spread: float  # median of their distances from it

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_file(cls, path: Path) -> Self | None:
        """What a file holds; None where it is none of ours."""
        with suppress(ConfigError, TypeError, ValueError):
            data: Any = load_json(path)
            fit = cls(**data)
            numbers = (fit.trials, fit.log_factor, fit.log_spread)
            if all(isinstance(value, (int, float)) and np.isfinite(value) for value in numbers):
                return fit
        return None


def fit_local(name: str, simulator: Simulator, trials: Sequence[Trial], task: Task, study: str) -> LocalFit | None:
    """Compare a simulator that has not seen the trials with them; None where they are too few, or it has no answer."""
    metric = task.objective.metric
    measured: dict[Any, list[float]] = {}
    for trial in trials:
        value = trial.measurement.metrics.get(metric, 0.0)
        if trial.ok and trial.measurement.fidelity is Fidelity.MEASURED and value > 0.0:
            measured.setdefault(trial.config, []).append(value)
    if len(measured) < MIN_CONFIGURATIONS:
        return None
    try:
        predicted = simulator.predict(list(measured), task).value
        kind = _gpu_of(task)
    except ConfigError:
        return None
    logs = np.log(np.array([float(np.median(values)) for values in measured.values()]) / np.where(predicted > 0.0, predicted, np.nan))
    logs = logs[np.isfinite(logs)] * (-1.0 if task.objective.direction is Direction.MAXIMIZE else 1.0)  # rates are one over times
    if len(logs) < MIN_CONFIGURATIONS:
        return None
    middle = float(np.median(logs))
    spread = float(np.median(np.abs(logs - middle)))
    return LocalFit(
        study=study,
        simulator=name,
        gpu=kind,
        system=task.system,
        trials=len(logs),
        log_factor=round(middle, 4),
        log_spread=round(spread, 4),
    )


def _gpu_of(task: Task) -> str:
    """Name of the (first) kind of GPU: `gpus: 8xH100`, or a count and `gpu: H100`."""
    facts = {**task.software, **task.hardware, **task.workload}
    counted = facts.get("gpus")
    if isinstance(counted, str) and not counted.strip().isdecimal():
        return cluster(counted).groups[0][0].name
    return gpu(str(facts.get("gpu")).split(",")[0]).name


@dataclass(frozen=True, kw_only=True)
class LocalScale:
    """All studies on one kind of GPU with one software together."""

    factor: float = 1.0
    sentence: str = ""


def local_scale(folder: Path, simulator: str, gpu: str, system: str) -> LocalScale:
    """The factor for times, from all result folders in `folder`; 1 where no study says anything."""
    fits = [fit for fit in _fits(folder) if (fit.simulator, fit.gpu, fit.system) == (simulator, gpu, system)]
    if not fits:
        return LocalScale()
    logs = np.array([fit.log_factor for fit in fits])
    factor = float(np.exp(_middle(logs)))
    before = float(np.median(np.abs(logs)))
    count = sum(fit.trials for fit in fits)
    sentence = f"{len(fits)} of your studies ({count} configurations on {gpu} with {system}): times x {factor:.3g}"
    if len(fits) > 1:  # each predicted with the others
        after = float(np.median([abs(log - _middle(np.delete(logs, index))) for index, log in enumerate(logs.tolist())]))
        sentence += f"; median error of a study {np.expm1(before):.0%} without, {np.expm1(after):.0%} with the other ones' factor"
    else:
        within = np.expm1(fits[0].log_spread)
        sentence += f"; median error there {np.expm1(before):.0%} without, {within:.0%} with it (one study: not judged on another)"
    return LocalScale(factor=factor, sentence=sentence)


def _middle(logs: np.ndarray[Any, Any]) -> float:
    return float(np.median(logs)) * len(logs) / (len(logs) + SHIPPED_STUDIES)


def _fits(folder: Path) -> Iterable[LocalFit]:
    for path in sorted(folder.glob(f"*/{FILE}")) if folder.is_dir() else ():
        fit = LocalFit.from_file(path)
        if fit is not None:
            yield fit


__all__ = ["FILE", "LocalFit", "LocalScale", "fit_local", "local_scale"]
