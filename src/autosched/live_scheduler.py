"""What a controller asks of a live scheduler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from autosched.events import JobEvent
from autosched.sim.cluster import Cluster
from autosched.sim.snapshot import Snapshot
from autoscout.core.clock import Clock
from autoscout.core.config import Config
from autoscout.core.errors import AutoScoutError
from autoscout.space import Space


class LiveError(AutoScoutError):
    """A live scheduler does not answer, refuses a change, or answers nonsense. Whether a change took is then not known."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Sight:
    """A cluster as it is seen at a moment.

    Attributes:
        at_s: The moment.
        cluster: Its nodes.
        snapshot: The jobs that run and wait.
        events: What happened since the last look; may repeat what is known.
        settings: The settings that the scheduler says are in force.
    """

    at_s: float
    cluster: Cluster
    snapshot: Snapshot
    events: Sequence[JobEvent]
    settings: Config


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a change would be made.

    Attributes:
        diff: For people: what changes in files or objects.
        data: JSON that `apply`, `found` and `restore` need; kept in the ledger before anything is touched.
    """

    diff: str
    data: Mapping[str, Any] = field(default_factory=dict)


class LiveScheduler(Protocol):
    """A real scheduler, or one that stands for it.

    Attributes:
        model: The scheduler plug-in that simulates it.
        pinned: Knobs of the model that say what it is like and that cannot be changed live.
        clock: Whose time it lives in.
    """

    model: ClassVar[str]
    pinned: Config
    clock: Clock

    def space(self, cluster: Cluster) -> Space:
        """The knobs that can be changed live, with the values that this version takes."""

    def look(self) -> Sight:
        """The cluster now.

        Raises:
            LiveError: it does not answer.
        """

    def settings(self) -> Config:
        """What the scheduler itself says is in force.

        Raises:
            LiveError: it does not answer.
        """

    def plan(self, after: Config) -> Plan:
        """How these settings would be put in force; nothing is changed.

        Raises:
            ConfigError: they are outside of what this version takes, or belong to lines that are not ours.
            LiveError: it cannot be found out what there is now.
        """

    def apply(self, plan: Plan) -> None:
        """Put a plan in force. Called once per plan.

        Raises:
            LiveError: it was refused, or nobody answered.
        """

    def stored(self, plan: Plan) -> str:
        """What the scheduler would read if it were started now: `before` the plan, `after` it, or something `other`.

        Raises:
            LiveError: nobody answered.
        """

    def restore(self, plan: Plan) -> None:
        """Bring back what was there before a plan; does nothing where it never took.

        Raises:
            LiveError: nobody answered.
        """
