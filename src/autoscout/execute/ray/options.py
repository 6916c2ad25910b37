"""What users may set about Ray."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from autoscout.core.errors import require
from autoscout.execute._shared.remote.nodes import KINDS
from autoscout.execute._shared.sharing import GpuOptions

ADDRESS = "RAY_ADDRESS"
"""Ray's own environment variable with the address of a cluster."""


@dataclass(frozen=True, kw_only=True)
class RayOptions(GpuOptions):
    """Which Ray to use, and how it treats a trial; Ray holds back trials for which no machine has room.

    Attributes:
        address: Of the cluster: `auto`, `HOST:PORT` or `ray://HOST:PORT`; when empty what RAY_ADDRESS says. Without either a Ray is
            started on this machine, which ends with AutoScout. `local` starts one whatever RAY_ADDRESS says.
        cpus: CPUs of a Ray that is started here; all that this process may use when None.
        gpu_type: Type of the GPUs, as Ray calls it (`A100`).
        kinds: Where no type is named and the cluster has several: `one` uses the type with the most GPUs, so that configurations can be
            compared; `any` uses all.
        resources: Further resources of Ray that each trial asks for, such as `{rack-7: 0.01}`.
        elastic: Whether machines may join: a trial that no machine holds now waits instead of being refused.
        attempts: How often a trial is tried whose worker or machine is lost.
    """

    address: str = ""
    cpus: int | None = None
    gpu_type: str = ""
    kinds: str = "one"
    resources: Mapping[str, float] = field(default_factory=dict)
    elastic: bool = False
    attempts: int = 3

    def __post_init__(self) -> None:
        rules = {
            "cpus": (self.cpus is None or (self.cpus >= 1 and not self.joins), "must be at least 1, and is for a Ray started here"),
            "kinds": (self.kinds in KINDS, f"must be one of: {', '.join(KINDS)}"),
            "attempts": (self.attempts >= 1, "must be at least 1"),
            "resources": (all(amount > 0 for amount in self.resources.values()), "must be above zero each"),
        }
        require("executor ray", self, self.checks() | rules)

    @property
    def joins(self) -> str:
        """The address of the cluster to join; empty when a Ray is started here."""
        address = self.address or os.environ.get(ADDRESS, "")
        return "" if address == "local" else address
