"""Classifiers behind one name: numpy ones that are always there, and those of other packages, imported on use."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from autosched.predict.ranges import RANGES, range_of
from autoscout.core.errors import Fault, PluginError

Vector = NDArray[np.float64]
EXECUTED = 3  # column of the features that holds the seconds a job has run
GPUS = 4  # column with its GPUs

PACKAGES = {
    "majority": "",
    "frequency": "",
    "histogram-trees": "sklearn",
    "random-forest": "sklearn",
    "mlp": "sklearn",
    "logistic-regression": "sklearn",
    "xgboost": "xgboost",
    "lightgbm": "lightgbm",
}
"""Name of a classifier -> the package it needs."""
DEFAULT = "random-forest"
"""The best of them on unfinished jobs of Philly and Venus: docs/autosched/results/autosched.md."""


class Classifier(Protocol):
    """Learns ranges from rows of features, and gives their probabilities."""

    def fit(self, rows: Vector, ranges: NDArray[np.int64]) -> Any: ...

    def chances(self, rows: Vector) -> Vector: ...


class Frequency:
    """How often each range came up in the past: among all jobs, or (`alike`) among those of the same size that had run about as long."""

    def __init__(self, *, alike: bool) -> None:
        self._alike = alike
        self._shares: dict[tuple[float, int], Vector] = {}
        self._all = np.full(RANGES, 1.0 / RANGES)

    def fit(self, rows: Vector, ranges: NDArray[np.int64]) -> Frequency:
        if len(ranges):
            self._all = np.bincount(ranges, minlength=RANGES) / len(ranges)
        if self._alike:
            kinds, which = np.unique(_kinds(rows), axis=0, return_inverse=True)
            counts = np.bincount(which.reshape(-1) * RANGES + ranges, minlength=len(kinds) * RANGES).reshape(-1, RANGES)
            # five jobs' worth of what all do, so that a kind seen once says little
            shares = (counts + 5.0 * self._all) / (counts.sum(axis=1, keepdims=True) + 5.0)
            self._shares = {(float(size), int(ran)): share for (size, ran), share in zip(kinds, shares, strict=True)}
        return self

    def chances(self, rows: Vector) -> Vector:
        shares = [self._shares.get((float(size), int(ran)), self._all) for size, ran in _kinds(rows)]
        return np.stack(shares) if shares else np.zeros((0, RANGES))


def _kinds(rows: Vector) -> Vector:
    """GPUs, and a number for the range of the time run, another one for jobs that have not run at all."""
    executed = rows[:, EXECUTED]
    return np.stack([rows[:, GPUS], 2 * range_of(executed) - (executed <= 0)], axis=1)


class Foreign:
    """A classifier with the interface of scikit-learn; ranges that it never saw get no chance."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._classes = np.zeros(0, np.int64)
        self._one_thread = _limit()

    def fit(self, rows: Vector, ranges: NDArray[np.int64]) -> Foreign:
        self._classes, codes = np.unique(ranges, return_inverse=True)
        if len(self._classes) > 1:
            with self._one_thread():
                self._model.fit(rows, codes)
        return self

    def chances(self, rows: Vector) -> Vector:
        chances = np.zeros((len(rows), RANGES))
        if len(self._classes) > 1 and len(rows):
            with self._one_thread():
                chances[:, self._classes] = self._model.predict_proba(rows)
        else:
            chances[:, self._classes] = 1.0
        return chances


def _limit() -> Callable[[], Any]:
    """Makes contexts in which one thread works: threads of OpenMP that wait for each other on a busy machine take many times the work.

    Which libraries have threads is looked up once, for all later questions: the look takes longer than most of them.
    """
    if importlib.util.find_spec("threadpoolctl") is None:
        return contextlib.nullcontext
    threads = importlib.import_module("threadpoolctl").ThreadpoolController()
    return lambda: threads.limit(limits=1)


def classifier(name: str, seed: int = 0, rounds: int = 100) -> Classifier:
    """A fresh classifier.

    Args:
        name: One of `PACKAGES`.
        seed: Of those that draw.
        rounds: Trees of the ensembles.

    Raises:
        PluginError: there is none of this name, or its package is not installed.
    """
    if name not in PACKAGES:
        raise PluginError(Fault(where="predictor", field="model", value=repr(name), rule=f"must be one of {', '.join(PACKAGES)}"))
    if not is_installed(name):
        rule = f"needs a package that is not installed: {PACKAGES[name]}"
        raise PluginError(Fault(where=f"predictor {name}", rule=rule, fix="pip install 'autoscout[autosched]', or use frequency"))
    if not PACKAGES[name]:
        return Frequency(alike=name == "frequency")
    return Foreign(_foreign(name, seed, rounds))


def is_installed(name: str) -> bool:
    """Whether the package of a classifier is there."""
    return not PACKAGES[name] or importlib.util.find_spec(PACKAGES[name]) is not None


def installed(name: str = "") -> str:
    """A classifier that is there: the one asked for, else the default, else the frequencies of the past."""
    return next(each for each in (name, DEFAULT, "frequency") if each and is_installed(each))


def _foreign(name: str, seed: int, rounds: int) -> Any:
    if name == "xgboost":
        return importlib.import_module("xgboost").XGBClassifier(
            n_estimators=rounds, max_depth=8, learning_rate=0.1, n_jobs=1, random_state=seed, verbosity=0
        )
    if name == "lightgbm":
        return importlib.import_module("lightgbm").LGBMClassifier(
            n_estimators=rounds, max_depth=8, learning_rate=0.1, n_jobs=1, random_state=seed, verbosity=-1
        )
    if name in ("histogram-trees", "random-forest"):
        ensemble = importlib.import_module("sklearn.ensemble")
        if name == "random-forest":
            return ensemble.RandomForestClassifier(n_estimators=rounds, max_depth=16, n_jobs=1, random_state=seed)
        return ensemble.HistGradientBoostingClassifier(
            max_iter=rounds, max_depth=8, learning_rate=0.1, early_stopping=False, random_state=seed
        )
    scaled = importlib.import_module("sklearn.preprocessing").StandardScaler()
    logs = importlib.import_module("sklearn.preprocessing").FunctionTransformer(_logs)
    if name == "mlp":
        last = importlib.import_module("sklearn.neural_network").MLPClassifier((64, 64), early_stopping=True, random_state=seed)
    else:
        last = importlib.import_module("sklearn.linear_model").LogisticRegression(max_iter=1_000)
    return importlib.import_module("sklearn.pipeline").make_pipeline(logs, scaled, last)


def _logs(rows: Vector) -> Vector:
    """Seconds span five decades: linear models and networks see their logarithms."""
    return np.sign(rows) * np.log1p(np.abs(rows))
