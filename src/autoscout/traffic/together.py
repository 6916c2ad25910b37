"""One set of metrics from those of several windows: rates as if each window took its part of the requests, everything else at its worst."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from autoscout.traffic.description import TrafficWindow

RATES = ("capacity_rps", "capacity_sessions", "offered_rps", "capacity_low_rps", "capacity_high_rps", "goodput", "request_goodput")
LEAST = ("capacity_confirmed", "token_agreement", "feasible", "prefix_hit_share", "goodput_share", "acceptance_rate", "acceptance_length")
COUNTS = ("completed", "failed", "input_tokens", "output_tokens", "preemptions")
OF_WINDOW = re.compile(r"^(?P<metric>\w+)_w(?P<number>\d+)$")
"""Name of a metric of one window, counted from 1."""


def together(windows: Sequence[TrafficWindow], parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The metrics of all windows as one, and those of each by their own names.

    A rate is the harmonic mean, weighted by the requests of a second in each window: what the servers that serve the windows one after
    another come to. Latencies are those of the worst window, so that a limit that holds holds in all of them.
    """
    weights = [window.rate or 1.0 for window in windows]
    names = [name for name in parts[0] if all(name in part for part in parts)]
    whole: dict[str, float] = {}
    for name in names:
        values = [part[name] for part in parts]
        if name in RATES or "throughput" in name:
            whole[name] = sum(weights) / sum(w / v for w, v in zip(weights, values, strict=True)) if min(values) > 0 else 0.0
        elif name in COUNTS:
            whole[name] = sum(values)
        else:
            whole[name] = min(values) if name in LEAST else max(values)
    for number, part in enumerate(parts, start=1):
        whole |= {f"{name}_w{number}": value for name, value in part.items() if name in names and name not in COUNTS and "_w" not in name}
    return whole


__all__ = ["OF_WINDOW", "together"]
