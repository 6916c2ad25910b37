"""The paper's simulators: linear regressions, each on its own subset of knobs (appendix B, Table 2)."""

from __future__ import annotations

from dataclasses import dataclass

from autoscout.catalog.training_knobs import GPU_KNOBS, KIND, KNOBS
from autoscout.core.errors import require
from autoscout.learning.regression import FittedRegression, least_squares

_BASE = ("micro_batch", "tp", "pp", "dp")
_EXCHANGE = ("zero", "dp_overlap", "gather_overlap", "bucket_mb", "bucket_count")
FIELDS: dict[str, tuple[str, ...]] = {
    "3d-parallelism": _BASE,
    "5d-parallelism": (*_BASE, "ep", "cp", "sequence_parallel"),
    "ddp-aware": (*_BASE, *_EXCHANGE),
    "communication-aware": (*_BASE, "recompute", "tp_overlap", "tp_comm_sms"),
}
"""Name of each simulator of Table 2 -> what it reads besides GPUs by kind; its `ddp_optim` is how replicas exchange gradients."""

_DEEPSPEED = ("overlap_comm", "reduce_bucket_size", "allgather_bucket_size", "contiguous_gradients", "reduce_scatter")
"""Knobs of the exchange that DeepSpeed has and no layout field stands for."""


def _knobs(fields: tuple[str, ...]) -> tuple[str, ...]:
    """All names of the knobs that fields stand for, of which a regression reads those that its trials have."""
    names = [name for field in fields for name in KNOBS[field] if name != KIND]
    return (*GPU_KNOBS, *names, *((KIND, *_DEEPSPEED) if "bucket_mb" in fields else ()))


TABLE_2 = {name: _knobs(fields) for name, fields in FIELDS.items()}
"""Name of each simulator of Table 2 -> the names of the knobs it reads, in the paper and in the backends."""


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
