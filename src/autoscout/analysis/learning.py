"""What default and answer learn, step by step, where a system reports losses: from the longest run of each that counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from autoscout.core.config import Config
from autoscout.core.trial import Trial

LOSS = "loss"
LAST = 4
"""The last of this many parts of the steps is what is compared: early losses say little."""


@dataclass(frozen=True, kw_only=True)
class Learning:
    """Losses by step of two configurations on the same data.

    Attributes:
        default: Of the default.
        best: Of the strongest configuration.
    """

    default: tuple[float, ...]
    best: tuple[float, ...]

    @property
    def steps(self) -> int:
        """How many both have made."""
        return min(len(self.default), len(self.best))

    @property
    def gap(self) -> float:
        """How far the loss of the best is above the default's at the end, as a share of it."""
        last = range(self.steps - max(1, self.steps // LAST), self.steps)
        ours, theirs = (fmean(curve[step] for step in last) for curve in (self.best, self.default))
        return (ours - theirs) / abs(theirs) if theirs else 0.0

    @property
    def sentence(self) -> str:
        where = "above" if self.gap >= 0 else "below"
        return f"After {self.steps} steps on the same data the loss is {abs(self.gap):.2%} {where} the default's"

    def to_json(self) -> dict[str, Any]:
        return {"steps": self.steps, "gap": round(self.gap, 6), "default": list(self.default), "best": list(self.best)}

    def to_csv(self) -> str:
        """One line a step."""
        rows = zip(self.default, self.best, strict=False)
        return "step,default,best\n" + "".join(f"{number},{theirs:.8g},{ours:.8g}\n" for number, (theirs, ours) in enumerate(rows, start=1))


def learning_of(trials: Sequence[Trial], default: Config, best: Config | None) -> Learning | None:
    """None where the two are one, or one of them told no losses."""
    if best is None or best == default:
        return None
    curves = [_longest(trials, config) for config in (default, best)]
    return Learning(default=curves[0], best=curves[1]) if all(curves) else None


def _longest(trials: Sequence[Trial], config: Config) -> tuple[float, ...]:
    own = [trial.measurement.samples.get(LOSS, ()) for trial in trials if trial.config == config and trial.ok]
    return max(own, key=len, default=())


__all__ = ["Learning", "learning_of"]
