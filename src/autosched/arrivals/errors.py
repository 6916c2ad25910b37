"""How far generated arrivals are from those that came, for every method next to the trivial ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from autosched.arrivals.arrivals import DAY_S, HOUR_S, WEEK_S, Generator, replace_counts
from autosched.arrivals.counts import Series, periodic
from autosched.sim.trace import Trace

TRIVIAL = ("last-hour", "yesterday", "last-week")


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Relative error of the next hour's number of jobs: |generated - true| / max(1, true).

    Attributes:
        raw_mean, raw_median: Against the jobs that came.
        smooth_mean, smooth_median: The periodic part of the whole trace in place of the counts, both as the past and as what came. This
            is how the paper counts; it knows the future, because the periodic part is computed from all of it.
        hours: Hours that were judged.
    """

    raw_mean: float
    raw_median: float
    smooth_mean: float
    smooth_median: float
    hours: int


def errors(trace: Trace, generator: Generator, warm_s: float = WEEK_S) -> Errors:
    """Every whole hour after `warm_s` is generated from what was before it."""
    if not len(trace):
        return Errors(raw_mean=np.nan, raw_median=np.nan, smooth_mean=np.nan, smooth_median=np.nan, hours=0)
    whole = Series.of(trace.submit_s, float(trace.submit_s[0]), float(trace.submit_s[-1]))
    smooth = replace_counts(whole, periodic(whole.counts, share=0.0))
    raw = _relative(whole, generator, warm_s)
    even = _relative(smooth, replace(generator, smooth=False), warm_s)
    if not len(raw):
        return Errors(raw_mean=np.nan, raw_median=np.nan, smooth_mean=np.nan, smooth_median=np.nan, hours=0)
    return Errors(
        raw_mean=float(raw.mean()),
        raw_median=float(np.median(raw)),
        smooth_mean=float(even.mean()),
        smooth_median=float(np.median(even)),
        hours=len(raw),
    )


def _relative(series: Series, generator: Generator, warm_s: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    hour = round(HOUR_S / series.step_s)
    rows = []
    for now in range(max(hour, round(warm_s / series.step_s)), len(series.counts) - hour + 1, hour):
        past = Series(series.start_s, series.counts[:now], series.step_s)
        expected = []
        for source in generator.sources(past):
            begin = round((source - series.start_s) / series.step_s)
            expected.append(float(series.counts[begin : min(begin + hour, now)].sum()))
        true = float(series.counts[now : now + hour].sum())
        rows.append(abs(float(np.mean(expected)) - true) / max(1.0, true))
    return np.asarray(rows)


def table(trace: Trace, warm_s: float = WEEK_S) -> dict[str, Errors]:
    """The trivial methods and the ones of the generator, by name."""
    span = float(trace.submit_s[-1] - trace.submit_s[0]) if len(trace) else 0.0
    warm = min(warm_s, max(DAY_S, span / 2))
    series = {
        **{name: Generator(method=name) for name in TRIVIAL},
        **{f"similar, {metric}": Generator(metric=metric) for metric in ("relative", "manhattan", "euclidean", "pearson", "cosine")},
        "similar, manhattan, any time": Generator(metric="manhattan", same_time_s=0.0),
        "mean of 5 nearest": Generator(method="nearest"),
        "similar, smoothed past": Generator(smooth=True, metric="manhattan"),
        "mixture": Generator(method="mixture"),
    }
    return {name: errors(trace, generator, warm) for name, generator in series.items()}
