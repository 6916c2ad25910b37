"""Which launch gets which machine of a pool: sizes are mixed, none waits for ever, and what fits nowhere is refused at once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from autoscout.core.errors import Fault
from autoscout.core.launch import Resources
from autoscout.execute._shared.allocation import Pool, Share, Waiting

KINDS = ("one", "any")
"""Where machines differ: `one` keeps launches on equal ones, so that configurations can be compared; `any` uses all."""

FIX = "Ask for less, give the executor more machines, or exclude such configurations from the space"


@dataclass(frozen=True, kw_only=True)
class ClusterNode:
    """One machine of a pool.

    Attributes:
        name: Its name.
        cores: CPUs that may be handed out.
        gpus: GPUs that may be.
        memory_gb: Memory that may be; None when nobody knows.
        slots: Launches without GPUs at once.
        kind: Equal for equal machines; empty when nobody knows.
    """

    name: str
    cores: int
    gpus: int
    memory_gb: float | None = None
    slots: int = 1
    kind: str = ""

    def can_hold(self, resources: Resources) -> bool:
        """Whether such a launch, or its part on one machine, fits when nothing else runs."""
        enough_memory = self.memory_gb is None or (resources.memory_gb or 0.0) <= self.memory_gb
        return resources.cpus <= self.cores and resources.gpus <= self.gpus and enough_memory


def choose_kind(nodes: Sequence[ClusterNode], resources: Resources) -> tuple[str, list[str]] | None:
    """The kind of GPU to use, of which most are in machines that can hold such a launch, and the other kinds.

    None where there is nothing to choose, or only the user can: machines with several kinds each, or without a name for theirs.
    """
    counts = Counter[str]()
    for node in nodes:
        if node.gpus:
            counts[node.kind] += node.gpus if node.can_hold(resources) else 0
    if len(counts) < 2 or not counts.total():
        return None
    (best, _), *others = counts.most_common()
    return None if not best or "," in best else (best, [kind or "without a type" for kind, _ in others])


def node_faults(nodes: Sequence[ClusterNode], resources: Resources, where: str, whose: str) -> list[Fault]:
    """Why such a launch can never run on these machines; empty when it can."""
    asked = {"cpus": float(resources.cpus), "gpus": float(resources.gpus), "memory_gb": resources.memory_gb or 0.0}
    faults = [
        Fault(where=where, field=f"resources.{name}", value=f"{amount:g}", rule="must not be negative")
        for name, amount in asked.items()
        if amount < 0
    ]
    if resources.nodes < 1:
        faults.append(Fault(where=where, field="resources.nodes", value=str(resources.nodes), rule="must be at least 1"))
    if faults:
        return faults
    fitting = [node for node in nodes if node.can_hold(resources)]
    if len(fitting) >= resources.nodes:
        return []
    if fitting:
        rule = f"{whose} has {len(fitting)} machines that hold one part of this launch"
        return [Fault(where=where, field="resources.nodes", value=str(resources.nodes), rule=rule, fix=FIX)]
    most = {
        "cpus": max((node.cores for node in nodes), default=0),
        "gpus": max((node.gpus for node in nodes), default=0),
        "memory_gb": max((node.memory_gb if node.memory_gb is not None else float("inf") for node in nodes), default=0),
    }
    single = [
        Fault(
            where=where,
            field=f"resources.{name}",
            value=f"{asked[name]:g}",
            rule=f"no machine of {whose} has more than {there:.4g}",
            fix=FIX,
        )
        for name, there in most.items()
        if asked[name] > there
    ]
    if single:
        return single
    amounts = ", ".join(f"{name} {amount:g}" for name, amount in asked.items() if amount)
    return [Fault(where=where, field="resources.cpus", value=amounts, rule=f"no machine of {whose} has all of it together", fix=FIX)]


class NodePool(Pool):
    """Hands out parts of machines. Thread-safe where `Pool` is not, since machines come and go while launches wait.

    The largest launch is looked at first: small ones fill what it leaves. A launch goes to the machine on which it leaves the fewest GPUs
    free, so that room for large ones stays together. For one that others have overtaken often enough, the machines that will be free
    first are kept, while others still start elsewhere.

    A launch gets the cores it asks for, or as many per GPU as the machine has, or per slot: the same launch always gets as many.

    Args:
        slots: Launches at once.
        nodes: The machines.
        whose: What they are, for messages: "the Slurm partition".
    """

    overtaken: ClassVar[int] = 16

    def __init__(self, slots: int, nodes: Iterable[ClusterNode], whose: str) -> None:
        super().__init__(slots)
        self.whose = whose
        self._guard = threading.RLock()
        self._nodes: dict[str, ClusterNode] = {}
        self._parts: dict[str, Pool] = {}
        self._drained: dict[str, str] = {}
        self._reserved: set[str] = set()
        self._running = 0
        for node in nodes:
            self.add(node)

    @property
    def nodes(self) -> tuple[ClusterNode, ...]:
        with self._guard:
            return tuple(self._nodes.values())

    def add(self, node: ClusterNode) -> None:
        """A machine that may be used, new or known and used again; a known one keeps the size it had, since launches hold parts of it."""
        with self._guard:
            self._drained.pop(node.name, None)
            if node.name not in self._nodes:
                self._nodes[node.name] = node
                gpus = [str(number) for number in range(node.gpus)]
                self._parts[node.name] = Pool(max(node.slots, node.gpus, 1), range(node.cores), gpus, node.memory_gb)

    def forget(self, name: str) -> None:
        """A machine that is not to be used at all."""
        with self._guard:
            self._nodes.pop(name, None)
            self._drained.pop(name, None)

    def drain(self, name: str, why: str) -> None:
        """Start nothing there any more."""
        with self._guard:
            self._drained[name] = why

    @property
    def drained(self) -> dict[str, str]:
        """The machines on which nothing is started, and why."""
        with self._guard:
            return dict(self._drained)

    def faults(self, resources: Resources, where: str) -> list[Fault]:
        with self._guard:
            return node_faults(self.nodes, resources, where, self.whose)

    def order(self, waiting: Sequence[Waiting]) -> Sequence[Waiting]:
        asked = [(each.launch.resources, each) for each in waiting]
        return [each for _, each in sorted(asked, key=lambda pair: -pair[0].nodes * max(pair[0].gpus, 1))]

    def take(self, resources: Resources) -> Share | None:
        with self._guard:
            if self._running >= self.slots:
                return None
            parts: list[Share] = []
            for name in self._by_fit():
                if len(parts) == resources.nodes:
                    break
                part = self._parts[name].take(self._part_of(self._nodes[name], resources))
                if part is not None:
                    parts.append(replace(part, machine=name))
            if len(parts) < resources.nodes:
                for part in parts:
                    self._parts[part.machine].give(part)
                return None
            self._running += 1
            return Share(parts=tuple(parts))

    def give(self, share: Share) -> None:
        with self._guard:
            self._running -= 1
            for part in share.parts:
                if part.machine in self._parts:
                    self._parts[part.machine].give(part)

    def hold(self, resources: Resources) -> bool:
        with self._guard:
            if self._running >= self.slots:
                return False
            usable = [name for name in self._by_fit() if self._nodes[name].can_hold(resources)]
            if len(usable) < resources.nodes:
                return False
            self._reserved |= set(usable[-resources.nodes :])  # those with the most that is free
            return True

    def let_go(self) -> None:
        with self._guard:
            self._reserved.clear()

    def _by_fit(self) -> list[str]:
        """Usable machines, those with the least that is free first."""
        usable = [name for name in self._nodes if name not in self._drained and name not in self._reserved]
        return sorted(usable, key=lambda name: self._parts[name].free)

    def _part_of(self, node: ClusterNode, resources: Resources) -> Resources:
        share = resources.gpus * node.cores // node.gpus if node.gpus else 0
        return replace(resources, cpus=max(resources.cpus, share))


__all__ = ["KINDS", "ClusterNode", "NodePool", "choose_kind", "node_faults"]
