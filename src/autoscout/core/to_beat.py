"""What a trial has to beat, told to the program that measures, so that it can stop as soon as it cannot win any more.

A study gives each proposal of its search a `ToBeat`; the profiler hands it to the launch as the environment variable
`AUTOSCOUT_TO_BEAT`, so that a backend's `render` stays pure. A program that measures (a driver) does:

    to_beat = ToBeat.here()
    ...
    if to_beat is not None and (why := to_beat.lost({"output_throughput": at_most, "p95_ttft_ms": at_least})):
        ...                      # stop, write the numbers so far, the bounds and `why`

The bounds are the best values that the metrics can still reach. `autoscout.common.bounds` gives certain ones for a load that is
partly done, `ToBeat.likely` likely ones from a short measurement. `parse` then returns a measurement with status `bounded`, these
bounds, and `why` as its reason. A program that ignores the variable is measured to its end.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from autoscout.core.launch import Launch
from autoscout.core.task import Direction, Limit

VARIABLE = "AUTOSCOUT_TO_BEAT"

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
        found: dict[str, float] = {}
        for name in better.keys() & samples.keys():
            values = samples[name]
            mean = fmean(values)
            deviation = max(self.spread * abs(mean), stdev(values) if len(values) > 1 else 0.0)
            found[name] = mean + better[name] * SURE * deviation / math.sqrt(len(values))
        return found

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


__all__ = ["VARIABLE", "ToBeat"]
