"""What a live scheduler is to a controller."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autosched.events import JobEvent
from autosched.sim.cluster import Cluster
from autosched.sim.snapshot import Snapshot
from autoscout.core.clock import Clock, RealClock
from autoscout.core.config import Config
from autoscout.core.errors import AutoScoutError
from autoscout.space import Space


class LiveError(AutoScoutError):
    """A live scheduler does not answer, refuses a change, or answers nonsense. Whether a change took is then not known."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ClusterState:
    """A cluster at a moment, as its scheduler describes it.

    Attributes:
        at_s: The moment.
        cluster: Its nodes.
        snapshot: The jobs that run and wait.
        events: What happened since the last look; may repeat earlier events.
        settings: The settings that the scheduler says are in force.
    """

    at_s: float
    cluster: Cluster
    snapshot: Snapshot
    events: Sequence[JobEvent]
    settings: Config


@dataclass(frozen=True, kw_only=True)
class ChangePlan:
    """How a change would be made.

    Attributes:
        diff: For people: what changes in files or objects; empty when nothing does.
        data: JSON that `apply`, `stored` and `restore` need; stored in the ledger before anything is touched.
    """

    diff: str
    data: Mapping[str, Any] = field(default_factory=dict)


class LiveScheduler(ABC):
    """A scheduler whose settings a controller reads and changes: a real one, or one that stands for it.

    A plug-in of the kind `live` is a subclass built as `cls(options)`: the block `live` of the controller's file without its `kind`. The
    constructor raises all faults of the options at once, and changes nothing. Then the controller calls `look` now and then. To change
    settings it calls `plan`, writes the plan into its ledger, and calls `apply` once. It may be killed at any moment: the one started after
    it has the plan from the ledger alone, asks `stored` and `settings` what became of it, and calls `restore` where it took by half.

    Attributes:
        model: The scheduler plug-in that simulates it.
        pinned: Knobs of the model that describe this scheduler and cannot be changed live.
        frozen: Settings that no search moves -> why; people may propose them.
        clock: The clock it runs by: its moments are those of `look`.
    """

    model: str
    pinned: Config = Config()
    frozen: Mapping[str, str] = {}
    clock: Clock = RealClock()

    @classmethod
    def example(cls, folder: Path) -> dict[str, Any] | None:  # noqa: ARG003 (for schedulers that write files there)
        """Options of one that runs without a cluster, for the conformance suite; None where there is no such thing.

        Args:
            folder: An empty folder.
        """
        return None

    @abstractmethod
    def space(self, cluster: Cluster) -> Space:
        """The knobs that can be changed live, with the values that this version takes; names are those of the model."""

    @abstractmethod
    def look(self) -> ClusterState:
        """The cluster now.

        Raises:
            LiveError: it does not answer.
        """

    @abstractmethod
    def settings(self) -> Config:
        """What the scheduler itself says is in force.

        Raises:
            LiveError: it does not answer.
        """

    def plan(self, after: Config) -> ChangePlan:
        """How these settings would be put in force; nothing is changed.

        Raises:
            ConfigError: they are outside of what this version takes, or belong to lines that are not ours.
            LiveError: the present settings cannot be read.
        """
        before = self.settings()
        changes = {name: (before.get(name), value) for name, value in after.items() if before.get(name) != value}
        diff = "".join(f"-{name}={old}\n+{name}={new}\n" for name, (old, new) in changes.items())
        return ChangePlan(diff=diff, data={"before": before.to_json(), "after": after.to_json()})

    def undo(self, plan: ChangePlan, before: Config) -> ChangePlan:  # noqa: ARG002 (for schedulers whose files can be as they were)
        """How a plan that took would be taken back; nothing is changed.

        Args:
            plan: Of the change.
            before: The settings before it.

        Raises:
            ConfigError: as for `plan`.
            LiveError: the present settings cannot be read.
        """
        return self.plan(before)

    @abstractmethod
    def apply(self, plan: ChangePlan) -> None:
        """Put a plan in force. Called once per plan.

        Raises:
            LiveError: it was refused, or nobody answered.
        """

    def stored(self, plan: ChangePlan) -> str:
        """What the scheduler would read if it were started now: `before` the plan, `after` it, or something `other`.

        Raises:
            LiveError: nobody answered.
        """
        now = self.settings()
        return next((name for name in ("before", "after") if Config(plan.data[name]) == now), "other")

    @abstractmethod
    def restore(self, plan: ChangePlan) -> None:
        """Bring back what was there before a plan; does nothing where it never took.

        Raises:
            LiveError: nobody answered.
        """
