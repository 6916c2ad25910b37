"""The paper's simulators: linear regressions, each on its own subset of knobs (appendix B, Table 2)."""

from __future__ import annotations

from dataclasses import dataclass

from autoscout.core.errors import require
from autoscout.learning.regression import FittedRegression, least_squares

_BASE = ("a100", "a40", "mbs", "tp", "pp", "dp")
TABLE_2: dict[str, tuple[str, ...]] = {
    "3d-parallelism": _BASE,
    "5d-parallelism": (*_BASE, "ep", "cp", "sp"),
    "ddp-aware": (*_BASE, "ddp_optim"),
    "communication-aware": (*_BASE, "ar", "tp_comm"),
}
"""Name of each simulator of Table 2 -> the knobs it reads."""


@dataclass(frozen=True, kw_only=True)
class LinearOptions:
    """Which knobs the regression reads.

    Attributes:
        subset: A row of Table 2, or `all` for every knob that the trials have.
        knobs: Explicit knobs instead of a named subset.
    """

    subset: str = "all"
    knobs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        subsets = ("all", *TABLE_2)
        require("linear", self, {"subset": (self.subset in subsets, f"must be one of: {', '.join(subsets)}")})

    @property
    def columns(self) -> tuple[str, ...] | None:
        return self.knobs or TABLE_2.get(self.subset)


class LinearRegression(FittedRegression):
    """Ordinary least squares of the metric on raw knob values, as in the paper; no logarithms, no interactions."""

    def __init__(self, options: LinearOptions | None = None) -> None:
        self.options = options or LinearOptions()
        super().__init__(least_squares, self.options.columns, log_inputs=False, log_target=False, onehot=True)


__all__ = ["LinearRegression"]
