"""What a scheduler is to the engine: its knobs, and a plan made of the four modules of the AutoSched paper (section 2.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np

from autosched.kernel.records import Allocations, Log, PolicyView, Records, Vector
from autosched.sim.cluster import Cluster
from autosched.sim.trace import Trace
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.protocols import SpaceLike

if TYPE_CHECKING:
    from autosched.sim.part import Part

TITAN_COST = ((1, 18.0), (2, 22.0), (7, 29.0), (8, 46.0))
"""(up to this many GPUs, seconds of work that one preemption costs), as Titan measured them."""

NO_ESTIMATE_S = 1_000.0
"""Replaces estimates below zero, which regressions produce (as in Lucid's artifact)."""


def believed_s(trace: Trace) -> Vector:
    """What a scheduler believes durations to be: `estimate_s` of the trace, else the truth."""
    estimate = trace.extra.get("estimate_s", trace.duration_s)
    limit_s = np.where(np.isnan(estimate), np.inf, estimate)  # no limit, or nothing is known: behind all others
    return np.where(limit_s < 0, NO_ESTIMATE_S, limit_s)


def one_record(kind: np.dtype[Any], **fields: float) -> Records:
    """An array of one record for kernels; fields that are not named are 0."""
    record = np.zeros(1, kind)
    for name, value in fields.items():
        record[name] = value
    return record


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where a job may run.

    Attributes:
        rule: `consolidated` (fewest nodes or wait), `relaxed` (fewest nodes, else spread), `fewest` (any mix of nodes, as long as
            it is the fewest possible) or `count` (nodes do not matter).
        remainder_to_emptiest: The rest of a multi-node job goes to the emptiest node (as in Lucid's simulator); off: to the node it
            fits best.
        slow_two, slow_more: Speed of a job on one node too many, and on more.
        pack_limit: Jobs whose sensitivity (`skew`) is above it are never spread.
        largest_first: Place the largest of the chosen jobs first.
    """

    rule: str = "consolidated"
    remainder_to_emptiest: bool = False
    slow_two: float = 0.9
    slow_more: float = 0.8
    pack_limit: float = np.inf
    largest_first: bool = False


@dataclass(frozen=True, kw_only=True)
class JobModel:
    """How jobs behave.

    Attributes:
        preemption_cost_s: Work added by one preemption, by size: (up to this many GPUs, seconds), in order; the last holds
            beyond (scaled with the GPUs if it names a size, as Titan does).
        checkpoint_s: Work since the last multiple is lost at preemption; 0 loses nothing.
        tick_s: Time between running out of work and leaving (one second in Lucid's simulator).
    """

    preemption_cost_s: tuple[tuple[int | None, float], ...] = TITAN_COST
    checkpoint_s: float = 0.0
    tick_s: float = 0.0

    def cost_s(self, gpus: Vector) -> Vector:
        """What one preemption costs each job."""
        cost = np.zeros(len(gpus))
        low = 0.0
        for size, seconds in self.preemption_cost_s:
            high = np.inf if size is None else float(size)
            cost[(gpus > low) & (gpus <= high)] = seconds
            low = high
        if np.isfinite(low) and low > 0:
            beyond = gpus > low
            cost[beyond] = self.preemption_cost_s[-1][1] * gpus[beyond] / low
        return cost


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """A scheduling module for the general loop (`kernel/ranked.py`), in which its functions are described.

    Attributes:
        rank, wake: The two functions of the policy.
        memory: What `rank` keeps between calls, as it is at the start.
        preemptive: Whether running jobs compete with pending ones.
        strict: Whether nobody overtakes a job that does not fit.
        backfill: With `strict`: how many jobs may be tried behind the blocked one, if by their estimates they do not delay it.
        backfill_every_s: Seconds between two such trials at least; in between the first in the order start, as far as they fit.
        reserve_all: With `backfill`: everybody who is tried and cannot start gets a reservation, not the first alone.
        backfill_window_s: Reservations begin no further ahead.
        resolution_s: Grid of the plan that those reservations are made on.
        review_s: Seconds between the moments as of which `rank` orders (`view.cluster.reviewed_s`); 0: always as of now.
        phase_s: On the trace's clock, a moment from which reviews and the first backfill are counted.
        round_s: Seconds between decisions; 0 decides at every event.
        round_offset_s: On the trace's clock, a moment at which a round falls.
        every_event: Whether `rank` must be called although nobody waits.
    """

    rank: Callable[[PolicyView], None]
    wake: Callable[[PolicyView], float]
    memory: Vector = field(default_factory=lambda: np.zeros(1))
    preemptive: bool = False
    strict: bool = False
    backfill: int = 0
    backfill_every_s: float = 0.0
    reserve_all: bool = False
    backfill_window_s: float = np.inf
    resolution_s: float = 1.0
    review_s: float = 0.0
    phase_s: float = 0.0
    round_s: float = 0.0
    round_offset_s: float = 0.0
    every_event: bool = False

    def __post_init__(self) -> None:
        if self.backfill and (self.preemptive or not self.strict):
            raise ConfigError(
                Fault(where="ranking", field="backfill", value=str(self.backfill), rule="goes with a strict order without preemption")
            )


@dataclass(frozen=True, kw_only=True)
class FixedOrder:
    """A scheduling module for the fast loop (`kernel/fixed.py`): one order for all time, nobody overtakes, nobody is preempted.

    Attributes:
        tie: Second key per job.
        newcomers_by: The key that orders jobs that arrive together while nobody waits (as in Lucid's simulator); None: the same as for all.
    """

    tie: Vector | None = None
    newcomers_by: Vector | None = None


@dataclass(frozen=True, kw_only=True)
class OwnLoop:
    """A scheduling module that brings its event loop.

    Attributes:
        loop: Called with the state of a virtual cluster, its allocations and the options (one record). Lets everything happen that
            happens before `until_s` of the options, leaves what it must know in the state, and returns the log.
        name: Of the loop; states are handed on only between loops of one name.
        settings: Numbers that the loop reads, as an array of one record of floats.
        own: One record per job that the loop keeps, as it is for a job that has not begun.
        loop_fields: Fields of `own` that the loop itself changes.
    """

    loop: Callable[[Part, Allocations, Records], Log]
    name: str
    settings: Records
    own: Records
    loop_fields: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SchedulePlan:
    """What the engine does for one virtual cluster.

    Attributes:
        key: The fixed order of jobs, for modules that want one.
        params: What `rank` and `wake` receive.
        estimate_s: What the scheduler believes durations to be; None: `estimate_s` of the trace, else the truth.
    """

    scheduling: Ranking | FixedOrder | OwnLoop
    placement: Placement = field(default_factory=Placement)
    workload: JobModel = field(default_factory=JobModel)
    key: Vector | None = None
    estimate_s: Vector | None = None
    params: Vector = field(default_factory=lambda: np.zeros(1))


@runtime_checkable
class Scheduler(Protocol):
    """A scheduler: a frozen keyword-only dataclass whose fields are its knobs.

    - `space(cluster)` declares the knobs that can be tuned on a cluster.
    - `of(config)` builds the scheduler that a configuration of this space describes.
    - `plan(trace, cluster)` says what the engine does with the jobs of one virtual cluster; pure.
    """

    summary: ClassVar[str]

    @classmethod
    def space(cls, cluster: Cluster) -> SpaceLike: ...

    @classmethod
    def of(cls, config: Config) -> Self: ...

    def plan(self, trace: Trace, cluster: Cluster) -> SchedulePlan: ...


@dataclass(frozen=True, kw_only=True)
class Gate:
    """What all jobs pass before they reach their virtual clusters: some nodes of its own, on which new jobs run for a while.

    Attributes:
        nodes: Which nodes it takes: virtual clusters, and the numbers of the nodes in these.
        gpus: GPUs of each of them.
        rest: The other nodes.
        loop: Called with its state, its allocations and the options (one record); returns when a borrowed node came and went.
        settings: Numbers that the loop reads, as an array of one record of floats.
        lender: The virtual cluster that lends a node; empty: none.
        ahead: Jobs join their queues when they arrive, not when they leave, and those that end here never do: it must be known beforehand.
    """

    nodes: tuple[tuple[str, int], ...]
    gpus: int
    rest: Cluster
    loop: Callable[[Part, Allocations, Records], Log]
    settings: Records
    lender: str = ""
    ahead: bool = False


@runtime_checkable
class Admitting(Protocol):
    """A scheduler with an admission module. `gate` says what it is on a cluster; times are counted from `origin`; None: there is none."""

    def gate(self, cluster: Cluster, origin: float) -> Gate | None: ...
