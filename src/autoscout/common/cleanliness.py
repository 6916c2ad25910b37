"""Whether other work on a machine spoils what is measured there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Cleanliness:
    """When other work on the machine spoils a sample.

    Pressure alone does not: a trial with more threads than cores makes its own. It counts while others used the trial's cores.
    On its GPUs the load of others is known by itself.
    """

    pressure: float = 0.2  # share of the time in which something waited for a CPU
    others: float = 0.1  # share of the trial's cores, or of its GPUs' time, that somebody else used

    def is_dirty(self, conditions: Mapping[str, float]) -> bool:
        """Whether a sample taken under these conditions is to be taken again."""
        if conditions.get("gpu_other_share", 0.0) > self.others:
            return True
        others = conditions.get("other_cpu_share")
        return conditions.get("cpu_pressure", 0.0) > self.pressure and (others is None or others > self.others)
