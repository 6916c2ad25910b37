"""One launch on one or several other machines, from our side."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from autoscout.core.errors import LaunchError
from autoscout.core.launch import Completed, Launch
from autoscout.core.log import NOTICES, logger
from autoscout.core.trial import MACHINE_PROBE
from autoscout.execute._shared.allocation import Share
from autoscout.execute._shared.queue import Requeue
from autoscout.execute._shared.remote.agent import Hello
from autoscout.execute._shared.remote.channel import Channel, Lost
from autoscout.execute._shared.remote.order import LaunchOrder

Answer = TypeVar("Answer")

HOSTFILE = "hostfile"
"""File of a launch on several machines: one `HOST slots=N` a line, as MPI and DeepSpeed read it."""

notices = logger(NOTICES)


class TrialMachines(Protocol):
    """The machines of an executor, as a trial sees them."""

    def take(self, share: Share, stopped: threading.Event) -> tuple[Share, ...] | None:
        """The machines of a launch that holds `share`; None when it was cancelled while it waited for them."""

    def open(self, part: Share) -> Channel:
        """A way to one of them."""

    def address(self, part: Share, hello: Hello) -> str:
        """How other machines of the launch reach this one."""

    def ended(self, part: Share, completed: Completed) -> Completed:
        """What is left to do after a launch has ended there, such as bringing its files back."""

    def lost(self, part: Share, why: str) -> None:
        """The machine went away."""

    def give(self) -> None:
        """The machines that were taken are not needed any more; also called when taking them failed."""


@dataclass(frozen=True, kw_only=True)
class Attempts:
    """How often the machine of one launch was lost."""

    most: int
    reasons: list[str] = field(default_factory=list)


class RemoteTrial:
    """A launch on the machines of its share.

    When a machine is lost the launch waits for another one, before those that came later. What one process of a launch on several
    machines does concerns all: when one fails or is lost, the others are ended.

    Args:
        asked: What to run; the part for each machine is made from it.
        share: The machines.
        machines: How to reach them.
        attempts: Shared by all tries of the launch.
        hello_s: How long a machine may take to answer; None for as long as it wants.
    """

    def __init__(self, order: LaunchOrder, share: Share, machines: TrialMachines, attempts: Attempts, hello_s: float | None) -> None:
        self._order = order
        self._share = share
        self._parts: tuple[Share, ...] = ()
        self._machines = machines
        self._attempts = attempts
        self._hello_s = hello_s
        self._stopped = threading.Event()  # by whoever submitted the launch
        self._enough = threading.Event()  # that, or a part that failed

    def stop(self) -> None:
        self._stopped.set()
        self._enough.set()

    def run(self) -> Completed:
        try:
            return self._try()
        except (Lost, LaunchError) as error:  # the second from a batch system that refuses or does not answer
            if self._stopped.is_set():
                return Completed(returncode=None, cancelled=True)
            self._attempts.reasons.append(str(error))
            if len(self._attempts.reasons) >= self._attempts.most:
                said = "; ".join(dict.fromkeys(self._attempts.reasons))
                return Completed(returncode=-signal.SIGKILL, error=f"lost {len(self._attempts.reasons)} times with its machine: {said}")
            notices.warning("launch %s runs again elsewhere: %s", self._order.launch.name, str(error)[:300])
            raise Requeue from error

    def _try(self) -> Completed:
        with ExitStack() as stack:
            stack.callback(self._machines.give)
            parts = self._machines.take(self._share, self._stopped)
            if parts is None:
                return Completed(returncode=None, cancelled=True)
            self._parts = parts
            channels: list[Channel] = []
            for part in parts:
                channels.append(self._machines.open(part))
                stack.callback(channels[-1].close)
            hellos = self._hellos(channels)
            if hellos is None:
                return Completed(returncode=None, cancelled=True)
            orders = self._orders(hellos)
            used = channels[: len(orders)]
            for channel, order in zip(used, orders, strict=True):
                channel.begin(order)
            return self._joined(self._on_each(used, self._result), hellos)

    def _hellos(self, channels: Sequence[Channel]) -> list[Hello] | None:
        """What all machines say, each waited for at the same time; None when the launch was cancelled meanwhile."""
        answered: set[Channel] = set()

        def greet(channel: Channel) -> Hello | None:
            hello = channel.hello(self._enough, self._hello_s)
            answered.add(channel)
            while len(answered) < len(channels) and not self._enough.is_set():
                channel.linger()  # a machine that hears nothing while the others start would give up
            return hello

        hellos = [hello for hello in self._on_each(channels, greet) if hello is not None]
        return hellos if len(hellos) == len(channels) else None

    def _orders(self, hellos: Sequence[Hello]) -> list[LaunchOrder]:
        """What each machine is asked; only the first is where its command reaches the others by itself."""
        if len(self._parts) == 1:
            return [self._order_on(self._parts[0])]
        addresses = [self._machines.address(part, hello) for part, hello in zip(self._parts, hellos, strict=True)]
        per_node = max(1, self._order.launch.resources.gpus)
        launch = with_hostfile(self._order.launch, addresses, per_node)
        if launch.resources.first_only:
            extra = {**self._order.extra, **meeting_environment(addresses[0], hellos[0].port)}
            return [replace(self._order_on(self._parts[0]), launch=launch, extra=extra)]
        orders: list[LaunchOrder] = []
        for rank, part in enumerate(self._parts):
            variables = rank_environment(rank, addresses, hellos[0].port, per_node)
            name = launch.name if rank == 0 else f"{launch.name}.{rank}"
            orders.append(replace(self._order_on(part), launch=replace(launch, name=name), extra={**self._order.extra, **variables}))
        return orders

    def _order_on(self, part: Share) -> LaunchOrder:
        return replace(self._order, cores=part.cores or None, gpus=tuple(map(int, part.gpus)) or None)

    def _result(self, channel: Channel) -> Completed:
        completed = channel.result(self._enough, self._order.settings.grace_s, self._order.packed is not None)
        if completed.returncode != 0:
            self._enough.set()
        return completed

    def _on_each(self, channels: Sequence[Channel], act: Callable[[Channel], Answer]) -> list[Answer]:
        """Do something with all machines at the same time; raises when one of them was lost, after the others have ended too."""
        answers: dict[int, Answer] = {}
        problems: dict[int, Exception] = {}

        def one(number: int) -> None:
            try:
                answers[number] = act(channels[number])
            except Exception as error:  # exceptions of threads are lost otherwise
                problems[number] = error
                if isinstance(error, Lost) and not self._stopped.is_set():
                    self._machines.lost(self._parts[number], str(error))
                self._enough.set()

        others = [threading.Thread(target=one, args=(number,), daemon=True) for number in range(1, len(channels))]
        for thread in others:
            thread.start()
        one(0)
        for thread in others:
            thread.join()
        for number in sorted(problems):
            raise problems[number]
        return [answers[number] for number in range(len(channels))]

    def _joined(self, answers: Sequence[Completed], hellos: Sequence[Hello]) -> Completed:
        """One answer for all machines: the first one's, or the first failure that was not caused by ending the others."""
        ended = [
            _with_machine(part, hello, self._machines.ended(part, answer))
            for part, hello, answer in zip(self._parts, hellos, answers, strict=False)
        ]
        if len(ended) == 1:
            others = [part.machine for part in self._parts[1:]]  # held for it, and reached by its own command
            return replace(ended[0], machine=",".join([ended[0].machine, *others])) if others else ended[0]
        if self._stopped.is_set():
            return replace(ended[0], returncode=None, cancelled=True)
        bad = [answer for answer in ended if answer.returncode != 0 and not answer.cancelled]
        first = bad[0] if bad else ended[0]
        if bad and first is not ended[0]:
            said = f"the process on {first.machine} failed, and the others were ended"
            first = replace(first, stderr=f"{ended[0].stderr}\n{first.stderr}", error=first.error or said, outputs=ended[0].outputs)
        return replace(
            first,
            cpu_s=sum(answer.cpu_s for answer in ended),
            peak_memory_gb=max(answer.peak_memory_gb for answer in ended),
            machine=",".join(answer.machine for answer in ended),
        )


def _with_machine(part: Share, hello: Hello, completed: Completed) -> Completed:
    """Add the machine's name and its speed just before the launch."""
    conditions = {**completed.conditions, MACHINE_PROBE: round(hello.probe_s, 5)}
    return replace(completed, machine=completed.machine or part.machine, conditions=conditions)


def rank_environment(rank: int, addresses: Sequence[str], port: int, per_node: int) -> dict[str, str]:
    """What the command on machine number `rank` is told: in words of its own, and in those that `torchrun` reads by itself."""
    variables = {"NNODES": len(addresses), "NODE_RANK": rank, "NPROC_PER_NODE": per_node}
    return {**_twice(variables), **meeting_environment(addresses[0], port)}


def meeting_environment(address: str, port: int) -> dict[str, str]:
    """Where the processes of a launch on several machines meet."""
    return _twice({"MASTER_ADDR": address, "MASTER_PORT": port})


def _twice(variables: Mapping[str, str | int]) -> dict[str, str]:
    return {name: str(value) for key, value in variables.items() for name in (key, f"PET_{key}")}


def with_hostfile(launch: Launch, addresses: Sequence[str], per_node: int) -> Launch:
    """The launch with a hostfile among its files, unless it brings one."""
    files: Mapping[str, str] = {HOSTFILE: "".join(f"{address} slots={per_node}\n" for address in addresses)}
    return replace(launch, files={**files, **launch.files})


__all__ = ["Attempts", "RemoteTrial", "TrialMachines"]
