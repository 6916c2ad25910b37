"""What a trial has to beat, told to the program that measures, so that it can stop as soon as it cannot win any more.

A study gives each proposal of its search a `ToBeat`; the profiler hands it to the launch as the environment variable
`AUTOSCOUT_TO_BEAT`, so that a backend's `render` stays pure. A program that measures (a driver) does:

    to_beat = ToBeat.here()
    ...
    if to_beat is not None and (why := to_beat.lost({"output_throughput": at_most, "p95_ttft_ms": at_least})):
        ...                      # stop, write the numbers so far, the bounds and `why`

The bounds are the best values that the metrics can still reach. `rate_at_most` and `latency_at_least` give certain ones for a load that is
partly done, `ToBeat.likely` likely ones from a short measurement; `Race` does all of this for a trial that repeats its measurement. `parse`
then returns a measurement with status `bounded`, these bounds, and `why` as its reason. A program that ignores the variable is measured
to its end.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from autoscout.core.launch import Launch
from autoscout.core.task import Direction, Limit

VARIABLE = "AUTOSCOUT_TO_BEAT"

Over = Callable[[Mapping[str, float]], bool]
"""Asked with the best that a repeat can still reach: whether it may end."""

SURE = 3.0
"""Standard errors: mean + SURE * deviation / sqrt(samples) is what a metric is likely to reach at best, one time in 700 more."""


@dataclass(frozen=True, kw_only=True)
class ToBeat:
    """What a trial must reach to be worth measuring to its end.

    Attributes:
        metric: The objective.
        direction: Which way is better.
        value: What it must be better than; None: only the limits count.
        limits: Must hold; guards are absolute here.
        spread: Relative standard deviation of a measurement, as far as it is known.
        known: What the same configuration came to before, where it is measured again and nothing is to beat: a program that
            searches for its number may begin there.
    """

    metric: str
    direction: Direction
    value: float | None = None
    limits: tuple[Limit, ...] = ()
    spread: float = 0.05
    known: float | None = None

    @classmethod
    def here(cls, environment: Mapping[str, str] | None = None) -> ToBeat | None:
        """What this process was told; None when there is nothing to beat, or what was told cannot be read."""
        try:
            data = json.loads((os.environ if environment is None else environment).get(VARIABLE, ""))
            return cls(
                metric=str(data["metric"]),
                direction=Direction(data["direction"]),
                value=None if data["value"] is None else float(data["value"]),
                limits=tuple(map(Limit.parse, data["limits"])),
                spread=float(data["spread"]),
                known=None if data.get("known") is None else float(data["known"]),
            )
        except Exception:  # a measurement must never fail over a hint that it may ignore
            return None

    def told_to(self, launch: Launch) -> Launch:
        """The launch with this in its environment."""
        data = {**vars(self), "direction": self.direction.value, "limits": [str(limit) for limit in self.limits]}
        return replace(launch, env={**launch.env, VARIABLE: json.dumps(data)})

    def likely(self, samples: Mapping[str, Sequence[float]]) -> dict[str, float]:
        """The best that metrics are likely to reach, judged by short measurements of them; only those that count here.

        The mean, improved by `SURE` standard errors, in which nobody believes less than `spread`.

        Args:
            samples: By metric, at least one value each.
        """
        better = {limit.metric: -1.0 if limit.op in ("<=", "<") else 1.0 for limit in self.limits}
        better[self.metric] = -1.0 if self.direction is Direction.MINIMIZE else 1.0
        chances: dict[str, float] = {}
        for name in better.keys() & samples.keys():
            values = samples[name]
            mean = fmean(values)
            deviation = max(self.spread * abs(mean), stdev(values) if len(values) > 1 else 0.0)
            chances[name] = mean + better[name] * SURE * deviation / math.sqrt(len(values))
        return chances

    def lost(self, bounds: Mapping[str, float]) -> str:
        """Why a trial cannot win any more; empty while it can.

        Args:
            bounds: The best value that each metric can still reach; metrics that nothing is known about are left out.
        """
        for limit in self.limits:
            if limit.metric in bounds and not limit.allows(bounds[limit.metric]):
                word = "at least" if limit.op in ("<=", "<") else "at most"
                return f"{limit.metric} is {word} {bounds[limit.metric]:.4g}, which breaks {limit}"
        best = bounds.get(self.metric)
        if best is None or self.value is None:
            return ""
        if self.direction is Direction.MINIMIZE and best > self.value:
            return f"{self.metric} is at least {best:.4g}, and {self.value:.4g} is to beat"
        if self.direction is Direction.MAXIMIZE and best < self.value:
            return f"{self.metric} is at most {best:.4g}, and {self.value:.4g} is to beat"
        return ""


class Race:
    """Whether a trial that repeats its measurement can still win: asked after every repeat but the last, and within each.

    Args:
        to_beat: What is to beat; None: it always can.

    Attributes:
        why: Why it cannot win any more; empty while it can.
        bounds: The best that its metrics are likely to reach, once it is lost.
    """

    def __init__(self, to_beat: ToBeat | None) -> None:
        self._to_beat = to_beat
        self.why = ""
        self.bounds: dict[str, float] = {}

    def lost(self, samples: Sequence[Mapping[str, float]], repeats: int = 0) -> bool:
        """By the repeats so far; `why` and `bounds` then say so. What was measured to its end is not bounded."""
        if self._to_beat is None or self.why or not samples or len(samples) == repeats:
            return bool(self.why)
        names = set.intersection(*(set(sample) for sample in samples))
        bounds = self._to_beat.likely({name: [sample[name] for sample in samples] for name in names})
        self.why = self._to_beat.lost(bounds)
        self.bounds = bounds if self.why else {}
        return bool(self.why)

    def over(self, samples: Sequence[Mapping[str, float]]) -> Over:
        """The same while a repeat runs: to be asked with the best that it can still reach."""
        return lambda best: self.lost([*samples, best])


def rate_at_most(total: float, elapsed_s: float) -> float:
    """The highest rate (tokens or requests per second) of a load that has run for `elapsed_s`, if all the rest came at once.

    Args:
        total: Tokens or requests of the whole load.
        elapsed_s: Since it began, above zero.
    """
    return total / elapsed_s


def latency_at_least(seen: Sequence[float], total: int, statistic: Callable[[Sequence[float]], float]) -> float:
    """The lowest a statistic of latencies can become, if all the rest took no time.

    Args:
        seen: Latencies of the requests that are done, and the ages of those under way.
        total: Requests of the whole load.
        statistic: Of all latencies, such as a mean or a percentile; must not fall when a latency rises.
    """
    return statistic([*seen, *[0.0] * (total - len(seen))])


__all__ = ["VARIABLE", "Over", "Race", "ToBeat", "latency_at_least", "rate_at_most"]
