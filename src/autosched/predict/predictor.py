"""The local predictor: ranges of unfinished jobs' durations, and remaining times drawn from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autosched.predict.features import DAY_S, Features, Repository, Rows
from autosched.predict.models import PACKAGES, Classifier, classifier, installed
from autosched.predict.ranges import EDGES_S, draw_duration_s, possible, range_of
from autoscout.core.errors import require
from autoscout.core.seeds import stream

Vector = NDArray[np.float64]
HOUR_S = 3_600.0
MIN_ENDED_JOBS = 50  # ended jobs below which only their durations are used


@dataclass(frozen=True, kw_only=True)
class PredictorOptions:
    """How durations are predicted.

    Attributes:
        model: Which classifier; empty, or where it is not installed: scikit-learn's random forest, else the frequencies of the past.
        refit_s: Seconds between two fits.
        memory_s: Jobs that came longer ago are not learned from.
        rounds: Trees of the ensembles; a hundred are no more often right about unfinished jobs, and take three times as long.
        likeliest: Take the likeliest range, as the paper; else draw it with its probability.
        with_user: Whether the user is a feature.
    """

    model: str = ""
    refit_s: float = DAY_S
    memory_s: float = 30 * DAY_S
    rounds: int = 30
    likeliest: bool = False
    with_user: bool = True

    def __post_init__(self) -> None:
        require(
            "predictor",
            self,
            {
                "model": (self.model in ("", *PACKAGES), f"must be one of {', '.join(PACKAGES)}"),
                "refit_s": (self.refit_s > 0, "must be above zero"),
                "memory_s": (self.memory_s > 0, "must be above zero"),
                "rounds": (self.rounds >= 1, "must be at least 1"),
            },
        )


class Predictor:
    """Fitted on the jobs that had ended, again when `refit_s` have passed; then asked about those that have not."""

    def __init__(self, options: PredictorOptions | None = None, seed: int = 0) -> None:
        self.options = options or PredictorOptions()
        self._seed = seed
        self._fitted_s = -np.inf
        self._model: Classifier | None = None
        self._past = np.zeros(0)
        self.name = "frequency of the past"  # of the model in use
        self.count = 0  # jobs that it was fitted on

    def fit(self, history: Repository, at_s: float) -> None:
        """Learn from the jobs that ended by `at_s`, unless that was done a short while ago."""
        if at_s - self._fitted_s < self.options.refit_s:
            return
        self._fitted_s = at_s
        ended = np.flatnonzero((history.end_s <= at_s) & (history.jobs.submit_s >= at_s - self.options.memory_s))
        self._past = np.sort(history.jobs.duration_s[ended])
        self._model, self.name, self.count = None, "durations of the past", len(ended)
        if len(ended) < MIN_ENDED_JOBS:
            return
        which, moments, executed = training_questions(history, ended)
        rows = Features(history, with_user=self.options.with_user).rows(which, moments, executed)
        name = installed(self.options.model)
        self.name = name if name == self.options.model or not self.options.model else f"{name} ({self.options.model} is not installed)"
        model = classifier(name, self._seed, self.options.rounds)
        model.fit(rows, range_of(history.jobs.duration_s[which]))
        self._model = model

    def chances(self, history: Repository, which: Rows, at_s: float | Vector, executed_s: Vector) -> Vector:
        """The probability of each range for jobs that have run `executed_s` by `at_s`, one moment or one each; none for ranges that they
        have outlived."""
        open_ = possible(executed_s)
        if self._model is None:
            past = np.bincount(range_of(self._past), minlength=open_.shape[1]) + 1.0
            answer = open_ * past
        else:
            rows = Features(history, with_user=self.options.with_user).rows(which, np.broadcast_to(at_s, len(which)), executed_s)
            answer = open_ * (self._model.chances(rows) + 1e-9)
        chances: Vector = answer / answer.sum(axis=1, keepdims=True)
        return chances

    def expected_s(self, chances: Vector) -> Vector:
        """Expected whole durations of jobs that have not run yet: the mean past duration of each range, by its probability."""
        if not len(self._past):
            return np.full(len(chances), np.nan)
        which = range_of(self._past)
        counts = np.bincount(which, minlength=chances.shape[1])
        edges = np.asarray((*EDGES_S, 2 * EDGES_S[-1]))  # of a range that no past job was in
        means = np.where(counts > 0, np.bincount(which, self._past, chances.shape[1]) / np.maximum(1, counts), edges)
        expected: Vector = chances @ means
        return expected

    def draw_s(self, chances: Vector, executed_s: Vector, names: Sequence[str | int]) -> Vector:
        """Whole durations of these jobs, longer than what they have run; `names` say which draw it is."""
        rng = stream(self._seed, "predictor", *names)
        if self.options.likeliest:
            which = chances.argmax(axis=1)
        else:
            which = (rng.random(len(chances))[:, None] > np.cumsum(chances, axis=1)[:, :-1]).sum(axis=1)
        return draw_duration_s(self._past, which.astype(np.int64), executed_s, rng)


def training_questions(history: Repository, ended: Rows) -> tuple[Rows, Vector, Vector]:
    """What a predictor is trained on: every job at its arrival, and at every whole hour until its answer is certain."""
    later, moments, executed = hourly_questions(history, ended, EDGES_S[-1])
    submit = history.jobs.submit_s[ended]
    return np.concatenate([ended, later]), np.concatenate([submit, moments]), np.concatenate([np.zeros(len(ended)), executed])


def hourly_questions(history: Repository, which: Rows, oldest_s: float = np.inf) -> tuple[Rows, Vector, Vector]:
    """Every job at every whole hour it lives through: its row, the moment, and the seconds it has run by then.

    Waiting is not known job by job: a job has run for its age, up to its duration. Jobs that have run for `oldest_s` are left out.
    """
    submit, end = history.jobs.submit_s[which], history.end_s[which]
    first = np.ceil(submit / HOUR_S)
    last = np.minimum(end, submit + oldest_s)
    hours = np.maximum(0, np.ceil(last / HOUR_S) - first).astype(np.int64)
    rows = np.repeat(which, hours)
    step = np.arange(len(rows)) - np.repeat(np.cumsum(hours) - hours, hours)
    moments = (np.repeat(first, hours) + step) * HOUR_S
    return rows, moments, np.minimum(moments - history.jobs.submit_s[rows], 0.999 * history.jobs.duration_s[rows])
