"""The global generator: past arrivals, replayed as those to come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from autosched.arrivals.counts import DISTANCES, STEP_S, Series, periodic
from autosched.sim.trace import Labels, Trace
from autoscout.core.errors import require

HOUR_S, DAY_S, WEEK_S = 3_600.0, 86_400.0, 604_800.0
METHODS = ("similar", "nearest", "last-hour", "yesterday", "last-week", "back", "mixture")


@dataclass(frozen=True, kw_only=True)
class Generator:
    """Which part of the past is replayed.

    Attributes:
        method: `similar` (what followed the most similar hour), `nearest` (one of the `nearest` most similar, at random),
            `last-hour`, `yesterday`, `last-week` (from that moment on, again), `back` (from `back_s` ago), or `mixture` (the last hour,
            yesterday, last week and the most similar hour, each job kept with a probability of one in as many).
        metric: How similarity is measured; one of `DISTANCES`.
        smooth: Compare the periodic parts instead of the counts.
        same_time_s: Only hours that ended at the same time of day, give or take this; 0: any.
        nearest: How many matches `nearest` draws from.
        window_s: Length of the stretch that is compared.
        back_s: For `back`: how long ago the replayed part began.
        speed: How many times as fast the replayed jobs come.
    """

    method: str = "similar"
    metric: str = "relative"
    smooth: bool = False
    same_time_s: float = 1_800.0
    nearest: int = 5
    window_s: float = HOUR_S
    back_s: float = DAY_S
    speed: float = 1.0

    def __post_init__(self) -> None:
        rules = {
            "method": (self.method in METHODS, f"must be one of {', '.join(METHODS)}"),
            "metric": (self.metric in DISTANCES, f"must be one of {', '.join(DISTANCES)}"),
            "same_time_s": (self.same_time_s >= 0, "must not be negative"),
            "nearest": (self.nearest >= 1, "must be at least 1"),
            "back_s": (self.back_s > 0, "must be above zero"),
            "speed": (0 < self.speed <= 100, "must be above zero and at most 100"),
            "window_s": (self.window_s >= STEP_S, f"must be at least {STEP_S:g}"),
        }
        require("generator", self, rules)

    def sources(self, series: Series) -> list[float]:
        """Moments from which the past is replayed, given the counts up to now (`series.end_s`); empty without any past.

        With `nearest` and `mixture` there are several, else one. Where the past is too short for a method, the last hour is used.
        """
        now = series.end_s
        back = {"last-hour": HOUR_S, "yesterday": DAY_S, "last-week": WEEK_S, "back": self.back_s}
        if not len(series.counts):
            return []
        if self.method in back:
            target_s = now - back[self.method]
            return [target_s if target_s >= series.start_s else max(series.start_s, now - HOUR_S)]
        if self.method == "mixture":
            names = ("last-hour", "yesterday", "last-week", "similar")
            return list(dict.fromkeys(moment for name in names for moment in replace(self, method=name).sources(series)))
        matches = self._matches(series, self.nearest if self.method == "nearest" else 1)
        return matches or [max(series.start_s, now - HOUR_S)]

    def _matches(self, series: Series, number: int) -> list[float]:
        """Ends of the stretches most similar to the last one, that have been followed by another whole stretch."""
        length = max(1, round(self.window_s / series.step_s))
        pattern = replace_counts(series, periodic(series.counts)) if self.smooth else series
        windows = pattern.windows(length)
        past = windows[: max(0, len(windows) - length)]
        if not len(past):
            return []
        distance = DISTANCES[self.metric](past, windows[-1])
        ends = series.start_s + series.step_s * (np.arange(len(past)) + length)
        if self.same_time_s:
            off = np.abs((series.end_s - ends + DAY_S / 2) % DAY_S - DAY_S / 2)
            if (off <= self.same_time_s).any():
                distance = np.where(off <= self.same_time_s, distance, np.inf)
        order = np.argsort(distance, kind="stable")[:number]
        return [float(ends[row]) for row in order if np.isfinite(distance[row])]

    def future(self, history: Trace, at_s: float, horizon_s: float, rng: np.random.Generator) -> Trace:
        """Jobs that arrive in [at, at + horizon): past ones, moved.

        A horizon longer than what is replayed repeats it. What was replayed is said in the trace's `filters`.
        """
        past = history.submit_s
        before = int(np.searchsorted(past, at_s, side="left"))
        first = float(past[0]) if before else at_s
        series = Series.of(past[:before], first, at_s)
        sources = self.sources(series)
        if self.method == "nearest" and sources:
            sources = [sources[int(rng.integers(len(sources)))]]
        keep = 1.0 / max(1, len(sources))
        rows, times = [np.zeros(0, np.int64)], [np.zeros(0)]
        for source in sources:
            which, moved = replay(past[:before], source, at_s, horizon_s * self.speed)
            chosen = rng.random(len(which)) < keep if keep < 1 else np.ones(len(which), bool)
            rows.append(which[chosen])
            times.append(at_s + (moved[chosen] - at_s) / self.speed)
        words = said(sources, at_s) + (f", {self.speed:g} times as fast" if self.speed != 1 else "")
        return moved_jobs(history, np.concatenate(rows), np.concatenate(times), words)


def replace_counts(series: Series, counts: NDArray[np.float64]) -> Series:
    """The same steps with other counts."""
    return Series(series.start_s, counts, series.step_s)


def replay(submit_s: NDArray[np.float64], source_s: float, at_s: float, horizon_s: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Rows of the jobs that arrived in [source, at), and their new moments in [at, at + horizon); repeated until that is full."""
    period = at_s - source_s
    first, last = np.searchsorted(submit_s, [source_s, at_s], side="left")
    rows, times = [np.zeros(0, np.int64)], [np.zeros(0)]
    for turn in range(int(np.ceil(horizon_s / period - 1e-9)) if period > 0 else 0):
        moved = submit_s[first:last] + period * (turn + 1)
        inside = np.flatnonzero(moved < at_s + horizon_s)
        rows.append(first + inside)
        times.append(moved[inside])
    return np.concatenate(rows).astype(np.int64), np.concatenate(times)


def moved_jobs(history: Trace, rows: NDArray[np.int64], submit_s: NDArray[np.float64], why: str) -> Trace:
    """These rows of a trace as new jobs that arrive at these moments."""
    order = np.argsort(submit_s, kind="stable")
    jobs = history.take(rows[order])
    names = np.char.add("next-", np.arange(len(order)).astype(np.str_))
    return replace(jobs, job_id=names, submit_s=submit_s[order], status=Labels.constant("", len(order)), source="generated", filters=(why,))


def said(sources: Sequence[float], at_s: float) -> str:
    """Which past is replayed, in words."""
    if not sources:
        return "no arrivals: there is no past to replay"
    ago = ", ".join(f"{(at_s - source) / HOUR_S:.1f} h" for source in sources)
    return f"arrivals replayed from {ago} ago"
