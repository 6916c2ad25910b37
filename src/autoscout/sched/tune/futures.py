"""Futures: what a cluster may have to do from a moment on, and what a configuration makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscout.core import plugins
from autoscout.core.config import Config
from autoscout.core.errors import Infeasible
from autoscout.core.seeds import stream
from autoscout.sched.cluster import Cluster
from autoscout.sched.engine import Run, simulate
from autoscout.sched.scheduler import Scheduler
from autoscout.sched.snapshot import Snapshot
from autoscout.sched.trace import Trace
from autoscout.sched.tune.measures import Before, measures

Vector = NDArray[np.float64]
SAMPLE = 2_000  # services of past jobs that a scheduler with an index over them is given


@dataclass(frozen=True, eq=False, kw_only=True)
class Future:
    """Jobs that are there and jobs to come.

    Attributes:
        at_s: When it begins.
        arrivals: Jobs to come.
        snapshot: Jobs that are there; None: an empty cluster.
        until_s: When it is stopped; infinite: when all is done.
        weights: How many jobs each of the snapshot and then of the arrivals is; None: one.
        words: Where it comes from, for people.
    """

    at_s: float
    arrivals: Trace
    snapshot: Snapshot | None = None
    until_s: float = np.inf
    weights: Vector | None = None
    words: str = ""

    @property
    def jobs(self) -> int:
        return len(self.arrivals) + (0 if self.snapshot is None else len(self.snapshot.jobs))


@dataclass(frozen=True, kw_only=True)
class Builder:
    """From configurations to schedulers that know what past jobs were like, and nothing of those to come."""

    scheduler: str
    services: tuple[float, ...] = ()

    def __call__(self, config: Config) -> Scheduler:
        built: Any = plugins.get("scheduler", self.scheduler).of(config)
        if self.services and any(each.name == "history" for each in fields(built)):
            built = replace(built, history=self.services)
        found: Scheduler = built
        return found

    @classmethod
    def of(cls, scheduler: str, past: Trace, seed: int = 0) -> Builder:
        """With the services of past jobs, a sample where there are many."""
        services = past.gpus * past.duration_s
        if len(services) > SAMPLE:
            services = stream(seed, "services").choice(services, SAMPLE, replace=False)
        return cls(scheduler=scheduler, services=tuple(float(value) for value in services))


@dataclass(frozen=True, eq=False, kw_only=True)
class Question:
    """How does a configuration do on these futures? The same ones for every configuration; metrics are means over them.

    With a `reference`, times are first divided by its own on the same future, so that a busy future does not count for more than a quiet
    one; the means are then given in its seconds again.
    """

    futures: Sequence[Future]
    cluster: Cluster
    build: Builder
    fair: bool = False
    reference: Config | None = None
    each: dict[Config, list[dict[str, float]]] = field(default_factory=dict)  # metrics future by future, of all that were asked

    def __call__(self, config: Config) -> dict[str, float]:
        """Mean metrics.

        Raises:
            Infeasible: jobs never end.
            ConfigError: the scheduler refuses the configuration.
        """
        rows = self._rows(config)
        names = [name for name in rows[0] if all(name in row for row in rows)]
        found = {name: float(np.mean([row[name] for row in rows])) for name in names}
        if self.reference is not None:
            base = [max(row["time_s"], 1e-9) for row in self._rows(self.reference)]
            found["time_s"] = float(np.mean([row["time_s"] / one for row, one in zip(rows, base, strict=True)]) * np.mean(base))
        return found

    def _rows(self, config: Config) -> list[dict[str, float]]:
        if config not in self.each:
            self.each[config] = [outcome(future, self.cluster, self.build(config), fair=self.fair) for future in self.futures]
        return self.each[config]

    @property
    def simulations(self) -> int:
        """How many runs that took."""
        return sum(len(rows) for rows in self.each.values())


def outcome(future: Future, cluster: Cluster, scheduler: Scheduler, *, fair: bool = False) -> dict[str, float]:
    """The metrics of one run.

    Raises:
        Infeasible: jobs never end.
    """
    result = simulate(future.arrivals, cluster, scheduler, Run(snapshot=future.snapshot, until_s=future.until_s))
    if endless := result.endless:
        raise Infeasible(endless)
    before = Before.nothing(result, future.at_s)
    kept = future.snapshot
    if kept is not None and len(kept.jobs):
        here = len(kept.jobs)
        before.executed_s[:here] = kept.executed_s
        remaining = result.trace.duration_s.copy()
        remaining[:here] = kept.remaining_s
        before = replace(before, remaining_s=remaining)
    return measures(result, before, future.weights, fair=fair)
