"""Arrivals per equal step of time, their periodic part, and how alike two stretches are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoscout.core.errors import ConfigError, Fault

STEP_S = 300.0  # seconds of one count: five minutes
MOST_STEPS = 2_000_000  # counts of one series: 19 years of five minutes, 16 MB

Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Series:
    """Counts of equal steps; the first step begins at `start_s`."""

    start_s: float
    counts: Vector
    step_s: float = STEP_S

    @classmethod
    def of(cls, submit_s: Vector, start_s: float, end_s: float, step_s: float = STEP_S) -> Series:
        """Arrivals (sorted) in whole steps that end at `end_s`; a first step that `start_s` cuts is left out."""
        steps = int((end_s - start_s) / step_s + 1e-9)
        if not 0 <= steps <= MOST_STEPS:
            rule = f"must span 0 to {MOST_STEPS:,} steps of {step_s:g} s"
            raise ConfigError(Fault(where="arrivals", field="end_s - start_s", value=f"{end_s - start_s:g}", rule=rule))
        edges = end_s - step_s * np.arange(steps, -1, -1)
        rows = np.searchsorted(submit_s, edges, side="left")
        return cls(float(edges[0]), np.diff(rows).astype(np.float64), step_s)

    @property
    def end_s(self) -> float:
        return self.start_s + self.step_s * len(self.counts)

    def windows(self, length: int) -> Vector:
        """All stretches of `length` steps, one per row."""
        return np.lib.stride_tricks.sliding_window_view(self.counts, length) if len(self.counts) >= length else np.zeros((0, length))


def periodic(counts: Vector, most: int = 30, share: float = 0.05) -> Vector:
    """The mean and the strongest waves of a series.

    Args:
        counts: Equal steps.
        most: Waves to keep at most.
        share: Only waves with at least this share of the power (without the mean); the strongest one is always kept.
    """
    if len(counts) < 4:
        return counts.copy()
    waves = np.fft.rfft(counts)
    power = np.abs(waves) ** 2
    power[0] = 0.0
    order = np.argsort(-power, kind="stable")[:most]
    total = power.sum()
    strong = order[power[order] >= share * total] if total > 0 else order[:0]
    smooth = np.zeros_like(waves)
    smooth[0] = waves[0]
    chosen = strong if len(strong) else order[:1]
    smooth[chosen] = waves[chosen]
    return np.maximum(0.0, np.fft.irfft(smooth, len(counts)))


def _cosine(windows: Vector, reference: Vector) -> Vector:
    size = np.linalg.norm(windows, axis=1) * np.linalg.norm(reference)
    alike: Vector = np.divide(windows @ reference, size, out=np.zeros(len(windows)), where=size > 0)
    return 1.0 - alike


DISTANCES: dict[str, Callable[[Vector, Vector], Vector]] = {
    "relative": lambda windows, reference: (np.abs(windows - reference) / np.maximum(reference, 1.0)).mean(axis=1),
    "manhattan": lambda windows, reference: np.abs(windows - reference).sum(axis=1),
    "euclidean": lambda windows, reference: np.sqrt(((windows - reference) ** 2).sum(axis=1)),
    "pearson": lambda windows, reference: _cosine(windows - windows.mean(axis=1, keepdims=True), reference - reference.mean()),
    "cosine": _cosine,
}
"""How far stretches (rows) are from a reference, by name: the relative percentage error of the paper's text, and those of its Table 5."""
