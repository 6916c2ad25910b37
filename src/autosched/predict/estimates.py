"""What a predictor believes of jobs when they arrive: the durations that schedulers by estimate order by."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from autosched.arrivals.arrivals import WEEK_S
from autosched.predict.features import DAY_S, Repository, Rows, Vector
from autosched.predict.predictor import Predictor, PredictorOptions
from autosched.sim.trace import Trace

ESTIMATE = "estimate_s"
"""Column of a trace that schedulers believe."""
ASKED_EVERY_S = 7_200.0
"""Jobs that arrive in this span are estimated from what was known at its beginning: asking for each alone would take longer."""


class Estimator:
    """Estimates of the durations of jobs at their arrival, by a predictor that is fitted on those that had ended before.

    Args:
        options: Of the predictor.
        seed: Equal seeds, equal estimates.
    """

    def __init__(self, options: PredictorOptions | None = None, seed: int = 0) -> None:
        self._predictor = Predictor(options or PredictorOptions(), seed)

    def estimates_s(self, history: Repository, which: Rows, at_s: float) -> Vector:
        """The expected durations of jobs `which`, asked at their arrivals; fitted on what had ended by `at_s`.

        Args:
            history: Jobs in order of arrival; ends that are not known are infinite.
            which: Jobs that arrive at or after `at_s`.
            at_s: The moment of the fit, unless the last one is recent.
        """
        self._predictor.fit(history, at_s)
        if not len(which):
            return np.zeros(0)
        chances = self._predictor.chances(history, which, history.jobs.submit_s[which], np.zeros(len(which)))
        return self._predictor.expected_s(chances)

    def past_s(self, history: Repository, from_s: float, to_s: float, every_s: float = DAY_S) -> Vector:
        """Estimates of the jobs that arrived in [from, to), span by span, each by a fit on what had ended before it."""
        submit, spans = history.jobs.submit_s, [np.zeros(0)]
        for begin in np.arange(from_s, to_s, every_s):
            first, last = np.searchsorted(submit, [begin, min(begin + every_s, to_s)], side="left")
            spans.append(self.estimates_s(history, np.arange(first, last), float(begin)))
        return np.concatenate(spans)


class Believed:
    """The jobs of a trace as they come, with what is believed of them at their arrival; of those to come nothing is.

    Args:
        trace: All jobs; its estimates, if it has any, are replaced.
        begin_s: When the cluster begins to be watched. What ended before counts as if nobody had queued.
        seed: Equal seeds, equal estimates.

    Attributes:
        trace: The same jobs; the estimates are filled in as jobs come.
        cpu_s: Process seconds that the estimates took.
    """

    def __init__(self, trace: Trace, begin_s: float, seed: int = 0) -> None:
        self.trace = trace.with_extra(**{ESTIMATE: np.full(len(trace), np.nan)})
        self._seed = seed
        self._estimator = Estimator(seed=seed)
        began = time.process_time()
        before = self.trace.between(-np.inf, begin_s)
        from_s = begin_s - 2 * WEEK_S
        first = int(np.searchsorted(trace.submit_s, from_s, side="left"))
        past = Estimator(seed=seed).past_s(Repository.unqueued(before), from_s, begin_s, WEEK_S)
        self.trace.extra[ESTIMATE][first : len(before)] = past
        self.cpu_s = time.process_time() - began

    def arrivals(self, end_s: Vector, at_s: float, first: int, to_s: float) -> Trace:
        """The jobs from row `first` on that arrive before `to_s`, with estimates from what had ended by `at_s`.

        Args:
            end_s: When each job of the trace ended; infinite for those that have not.
            at_s: Now.
            first: How many jobs have come.
            to_s: How far ahead.
        """
        began = time.process_time()
        last = max(first, int(np.searchsorted(self.trace.submit_s, to_s, side="left")))
        if first < last:
            self.trace.extra[ESTIMATE][first:last] = self._asked(end_s, first, last, at_s)
        self.cpu_s += time.process_time() - began
        return self.trace.take(slice(first, last))

    def guessed(self, end_s: Vector, at_s: float) -> Trace:
        """All jobs, those to come with what would be believed of them now: for oracles."""
        first, last = int(np.searchsorted(self.trace.submit_s, at_s, side="left")), len(self.trace)
        estimates = self.trace.extra[ESTIMATE].copy()
        estimates[first:] = Estimator(seed=self._seed).estimates_s(self._history(end_s, at_s, last), np.arange(first, last), at_s)
        return self.trace.with_extra(**{ESTIMATE: estimates})

    def _asked(self, end_s: Vector, first: int, last: int, at_s: float) -> Vector:
        return self._estimator.estimates_s(self._history(end_s, at_s, last), np.arange(first, last), at_s)

    def _history(self, end_s: Vector, at_s: float, last: int) -> Repository:
        """What is known: arrivals up to a job, and the ends until now; of the others not even how long they take."""
        ended = end_s[:last] <= at_s
        jobs = self.trace.take(slice(last))
        return Repository(replace(jobs, duration_s=np.where(ended, jobs.duration_s, 0.0)), np.where(ended, end_s[:last], np.inf))
