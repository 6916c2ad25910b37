"""How often the predicted range is right, by every way of counting, next to the majority."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autosched.predict.features import Features, Repository
from autosched.predict.models import PACKAGES, classifier, is_installed
from autosched.predict.predictor import hourly_questions, training_questions
from autosched.predict.ranges import EDGES_S, possible, range_of
from autosched.sim.trace import Trace

Vector = NDArray[np.float64]
MOST_QUESTIONS = 50_000  # asked hourly; more jobs and hours are thinned out evenly


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """Shares of right answers of one classifier.

    Attributes:
        at_arrival: Every test job, once, when it comes.
        hourly: Every unfinished test job at every whole hour.
        open: As `hourly`, without the jobs that had outlived all ranges but the last: their answer is certain.
        fit_s, ask_s: CPU seconds per thousand rows.
    """

    at_arrival: float
    hourly: float
    open: float
    fit_s: float
    ask_s: float


def accuracy(
    trace: Trace, models: Sequence[str] = tuple(PACKAGES), train: float = 0.7, rounds: int = 100, with_user: bool = True
) -> dict[str, Accuracy]:
    """The first share of the jobs trains, the rest is asked about; classifiers whose package is not installed are left out."""
    history = Repository.unqueued(trace)
    cut = int(train * len(trace))
    if cut < 1 or cut >= len(trace):
        return {}
    moment = float(trace.submit_s[cut])
    learned = np.flatnonzero((np.arange(len(trace)) < cut) & (history.end_s <= moment))
    later = np.arange(cut, len(trace))
    features = Features(history, with_user=with_user)
    which, at_s, executed = training_questions(history, learned)
    rows, truth = features.rows(which, at_s, executed), range_of(trace.duration_s[which])
    first = features.rows(later, trace.submit_s[later], np.zeros(len(later)))
    asked, asked_at, ran = hourly_questions(history, later)
    every = max(1, len(asked) // MOST_QUESTIONS)
    asked, asked_at, ran = asked[::every], asked_at[::every], ran[::every]
    again = features.rows(asked, asked_at, ran)
    undecided = ran < EDGES_S[-1]
    figures = {}
    for name in models:
        if not is_installed(name):
            continue
        model = classifier(name, rounds=rounds)
        began = time.process_time()
        model.fit(rows, truth)
        fitted = time.process_time()
        right = _right(model.chances(first), np.zeros(len(later)), trace.duration_s[later])
        hourly = _right(model.chances(again), ran, trace.duration_s[asked])
        ended = time.process_time()
        figures[name] = Accuracy(
            at_arrival=float(right.mean()),
            hourly=_mean(hourly),
            open=_mean(hourly[undecided]),
            fit_s=(fitted - began) / max(1, len(rows)) * 1_000,
            ask_s=(ended - fitted) / max(1, len(first) + len(again)) * 1_000,
        )
    return figures


def _right(chances: Vector, executed_s: Vector, duration_s: Vector) -> NDArray[np.bool_]:
    likeliest = (possible(executed_s) * (chances + 1e-9)).argmax(axis=1)
    right: NDArray[np.bool_] = likeliest == range_of(duration_s)
    return right


def _mean(values: NDArray[np.bool_]) -> float:
    return float(values.mean()) if len(values) else float("nan")
