"""Who has which cores, GPUs and memory of one machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar

from autoscout.core.errors import Fault
from autoscout.core.launch import Launch, Resources

FIX = "Ask for less, give the executor more, or exclude such configurations from the space"
ELSEWHERE = "Use an executor that has several: --hostfile FILE for machines that ssh reaches, or --executor slurm"


@dataclass(frozen=True, kw_only=True)
class Share:
    """What one running launch holds."""

    cores: tuple[int, ...] = ()
    gpus: tuple[str, ...] = ()
    memory_gb: float = 0.0
    machine: str = ""  # where they are; empty for this one
    parts: tuple[Share, ...] = ()  # of a launch on other machines: what it holds on each of them


class HasLaunch(Protocol):
    """Something that waits with a launch."""

    launch: Launch


Waiting = TypeVar("Waiting", bound=HasLaunch)


class Pool:
    """The parts of a machine, handed out in shares that never overlap. Not thread-safe: its owner locks.

    A launch gets the cores it asks for, or an even share of the machine where that is more: the same launch always gets as many,
    whatever else is running; otherwise its measurements could not be compared.

    Args:
        slots: Shares at once.
        cores: What may be handed out; empty hands out none (and none can be asked for in vain).
        gpus: Likewise.
        memory_gb: Sum of all memory limits; None for no bound.
    """

    def __init__(self, slots: int, cores: Sequence[int] = (), gpus: Sequence[str] = (), memory_gb: float | None = None) -> None:
        self.slots = slots
        self._cores = tuple(cores)
        self._gpus = tuple(gpus)
        self._memory_gb = memory_gb
        self._free_cores = list(cores)
        self._free_gpus = list(gpus)
        self._free_memory_gb = memory_gb or 0.0
        self._free_slots = slots

    overtaken: ClassVar[int] = 4
    """How often others may start before an earlier launch; after that something is kept free for it."""

    def order(self, waiting: Sequence[Waiting]) -> Sequence[Waiting]:
        """Order in which waiting launches are considered."""
        return waiting

    @property
    def free(self) -> tuple[int, int]:
        """GPUs and cores that nobody has."""
        return len(self._free_gpus), len(self._free_cores)

    def faults(self, resources: Resources, where: str) -> list[Fault]:
        """Why such a launch can never run here; empty when it can."""
        checks = [
            ("resources.cpus", resources.cpus, len(self._cores), "cores", bool(self._cores)),
            ("resources.gpus", resources.gpus, len(self._gpus), "GPUs", True),
            ("resources.nodes", resources.nodes, 1, "machine", not resources.first_only),
            ("resources.memory_gb", resources.memory_gb or 0.0, self._memory_gb or 0.0, "GB of memory", self._memory_gb is not None),
        ]
        excess = [
            Fault(
                where=where,
                field=field,
                value=f"{amount:g}",
                rule=f"this executor has {there:.4g} {unit}",
                fix=ELSEWHERE if field == "resources.nodes" else FIX,
            )
            for field, amount, there, unit, bounded in checks
            if bounded and amount > there
        ]
        return excess + [
            Fault(where=where, field=field, value=f"{amount:g}", rule="must not be negative") for field, amount, *_ in checks if amount < 0
        ]

    def take(self, resources: Resources) -> Share | None:
        """A share for such a launch; None while too little is free."""
        count = max(resources.cpus, len(self._cores) // self.slots) if self._cores else 0
        memory_gb = (resources.memory_gb or 0.0) if self._memory_gb is not None else 0.0
        if (
            self._free_slots < 1
            or count > len(self._free_cores)
            or resources.gpus > len(self._free_gpus)
            or memory_gb > self._free_memory_gb + 1e-9
        ):
            return None
        share = Share(cores=tuple(self._free_cores[:count]), gpus=tuple(self._free_gpus[: resources.gpus]), memory_gb=memory_gb)
        del self._free_cores[:count]
        del self._free_gpus[: resources.gpus]
        self._free_memory_gb -= memory_gb
        self._free_slots -= 1
        return share

    def hold(self, resources: Resources) -> bool:  # noqa: ARG002 - one machine cannot be kept free and used
        """Keep something free for such a launch until `let_go`, so that others may start without it; False when nothing can be kept."""
        return False

    def let_go(self) -> None:
        """End what `hold` has kept."""

    def give(self, share: Share) -> None:
        """Take a share back."""
        self._free_cores = [core for core in self._cores if core in {*self._free_cores, *share.cores}]
        self._free_gpus = [gpu for gpu in self._gpus if gpu in {*self._free_gpus, *share.gpus}]
        self._free_memory_gb += share.memory_gb
        self._free_slots += 1


class SlotPool(Pool):
    """Counts launches only: cores, GPUs and memory are somebody else's to hand out."""

    def __init__(self, slots: int) -> None:
        super().__init__(slots)

    def faults(self, resources: Resources, where: str) -> list[Fault]:  # noqa: ARG002 - whoever hands them out knows
        return []

    def take(self, resources: Resources) -> Share | None:  # noqa: ARG002
        return super().take(Resources())
