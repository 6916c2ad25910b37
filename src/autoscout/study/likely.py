"""Configurations that often do well, in view of what a simulator predicts: without those that are unlikely to run, the best first."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autoscout.core.config import Config
from autoscout.core.protocols import Simulator
from autoscout.core.task import Direction, Task

LIKELY = 0.5
"""Chance to run below which a hint is left to the search, which weighs that chance itself."""


def likely_hints(hints: Sequence[Config], simulator: Simulator, task: Task) -> list[Config]:
    """Those worth a trial before the search, best first; one that the simulator knows nothing of keeps its place behind those."""
    if not hints:
        return []
    predicted = simulator.predict(list(hints), task)
    better = -1.0 if task.objective.direction is Direction.MAXIMIZE else 1.0
    ranked: list[tuple[float, int]] = []
    for number, (value, chance) in enumerate(zip(predicted.value.tolist(), predicted.feasible.tolist(), strict=True)):
        if math.isnan(value):
            ranked.append((math.inf, number))
        elif chance >= LIKELY:
            ranked.append((better * value, number))
    return [hints[number] for _, number in sorted(ranked)]


__all__ = ["likely_hints"]
