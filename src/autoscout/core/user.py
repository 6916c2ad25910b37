"""What users bring to a backend: the launch that they have today."""

from __future__ import annotations

from collections.abc import Mapping
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


__all__ = ["UserLaunch"]
