"""What users bring to a backend: the launch that they have today, and the knobs and values that they name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autoscout.core.config import Value


@dataclass(frozen=True, kw_only=True)
class UserLaunch:
    """What somebody runs today, read from a command or a file.

    Attributes:
        workload: Fields of the workload that it sets: the model, flags that are no knobs, environment variables.
        hardware: Facts of the machine that it names, such as the number of GPUs.
        knobs: Values of knobs; what is not named is as the engine has it.
        left_out: What was read and means nothing here (a port, a log level), one sentence each.
    """

    workload: Mapping[str, Any] = field(default_factory=dict)
    hardware: Mapping[str, Any] = field(default_factory=dict)
    knobs: Mapping[str, Value] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Knobs and values that a campaign names, for a backend that can offer more than its usual ones.

    Attributes:
        knobs: Entries of `space.knobs`: values or a range, and what the backend's `knob_keys` allow besides.
        pinned: Values that hold for every configuration.
        baseline: What the user runs today.
        first: Configurations to try first.
    """

    knobs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    pinned: Mapping[str, Value] = field(default_factory=dict)
    baseline: Mapping[str, Value] = field(default_factory=dict)
    first: Sequence[Mapping[str, Value]] = ()


__all__ = ["Asked", "UserLaunch"]
