"""Changes of regime: a burst of jobs, or a job larger than any before, seen within minutes in what has arrived."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autosched.arrivals.arrivals import DAY_S, WEEK_S
from autosched.sim.trace import Trace

LOOK_S = 300.0
"""Seconds between looks."""
WINDOW_S = 1_800.0
"""Of arrivals that are compared, and that must pass until the next alarm."""
LEAST_PAST_S = DAY_S
"""Of past, without which nothing is unusual."""
TIMES = 2.0
"""Times the busiest such window of the past week that a burst is: a record alone is set about once a week by chance."""
BURST_SHARE, LARGE_SHARE = 0.25, 0.1
"""Of the cluster's GPUs, that a burst and a large job want at least: what is less finds room."""


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """Something unusual.

    Attributes:
        at_s: When it was seen: at the look after it.
        words: What, for people.
    """

    at_s: float
    words: str


def alarms(jobs: Trace, gpus: int, from_s: float, to_s: float) -> list[Alarm]:
    """What looks every `LOOK_S` would have seen; each look knows the arrivals before it and nothing else.

    Args:
        jobs: In order of arrival, with a week before `from_s` where there is one.
        gpus: Of the cluster.
        from_s, to_s: The looks are after the first and before the second.
    """
    begin = from_s - WEEK_S
    looks = np.arange(from_s + LOOK_S, to_s, LOOK_S)
    if not len(jobs) or not len(looks):
        return []
    steps, width = round(WEEK_S / LOOK_S), round(WINDOW_S / LOOK_S)
    place = np.floor((jobs.submit_s - begin) / LOOK_S).astype(np.int64)
    inside = (place >= 0) & (place < steps + len(looks))
    place, wanted = place[inside], jobs.gpus[inside]
    demand = np.bincount(place, wanted, steps + len(looks))
    largest = np.zeros(len(demand))
    np.maximum.at(largest, place, wanted)
    window = np.convolve(demand, np.ones(width))[: len(demand)]  # of the steps up to each, this one included
    first = max(0, round((float(jobs.submit_s[0]) - begin) / LOOK_S))
    raised: list[Alarm] = []
    for look, at_s in enumerate(looks.tolist()):
        end = steps + look  # the step that has just ended
        past = slice(max(first, end - steps), end - width + 1)
        is_known = (past.stop - past.start) * LOOK_S >= LEAST_PAST_S
        if not is_known or (raised and at_s - raised[-1].at_s < WINDOW_S):
            continue
        words = _burst(window, end, past, gpus) or _large(largest, end, past, gpus)
        if words:
            raised.append(Alarm(at_s=at_s, words=words))
    return raised


def _burst(window: NDArray[np.float64], end: int, past: slice, gpus: int) -> str:
    usual = float(window[past].max())
    if window[end] <= TIMES * usual or window[end] < BURST_SHARE * gpus:
        return ""
    return f"a burst: jobs for {window[end]:g} GPUs came in {WINDOW_S / 60:g} minutes, {usual:g} at most in the week before"


def _large(largest: NDArray[np.float64], end: int, past: slice, gpus: int) -> str:
    usual = float(largest[past].max())
    if largest[end] <= usual or largest[end] < LARGE_SHARE * gpus:
        return ""
    return f"a large job: it wants {largest[end]:g} GPUs, {usual:g} at most in the week before"


__all__ = ["LOOK_S", "Alarm", "alarms"]
