"""One launch on one or several other machines, from our side."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Protocol

from autoscout.core.errors import LaunchError
from autoscout.core.launch import Completed
from autoscout.core.log import NOTICES, logger
from autoscout.execute._shared.allocation import Share
from autoscout.execute._shared.queue import Requeue
from autoscout.execute._shared.remote.agent import Hello
from autoscout.execute._shared.remote.asked import Asked
from autoscout.execute._shared.remote.channel import Channel, Lost
from autoscout.execute._shared.remote.rendezvous import place_environment, with_hostfile

PROBE = "machine_probe_s"
"""Condition: seconds that a fixed piece of work took on the machine of a trial, just before it."""

notices = logger(NOTICES)


class Place(Protocol):
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
        place: How to reach them.
        attempts: Shared by all tries of the launch.
        hello_s: How long a machine may take to answer; None for as long as it wants.
    """

    def __init__(self, asked: Asked, share: Share, place: Place, attempts: Attempts, hello_s: float | None) -> None:
        self._asked = asked
        self._share = share
        self._parts: tuple[Share, ...] = ()
        self._place = place
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
            notices.warning("launch %s runs again elsewhere: %s", self._asked.launch.name, str(error)[:300])
            raise Requeue from error

    def _try(self) -> Completed:
        with ExitStack() as stack:
            stack.callback(self._place.give)
            parts = self._place.take(self._share, self._stopped)
            if parts is None:
                return Completed(returncode=None, cancelled=True)
            self._parts = parts
            channels: list[Channel] = []
            hellos: list[Hello] = []
            for part in self._parts:
                try:
                    channel = self._place.open(part)
                    stack.callback(channel.close)
                    hello = channel.hello(self._stopped, self._hello_s)
                except Lost as error:
                    self._place.lost(part, str(error))
                    raise
                if hello is None:
                    return Completed(returncode=None, cancelled=True)
                channels.append(channel)
                hellos.append(hello)
            for channel, asked in zip(channels, self._asks(hellos), strict=True):
                channel.begin(asked)
            return self._joined(self._results(channels), hellos)

    def _asks(self, hellos: Sequence[Hello]) -> list[Asked]:
        """What each machine is asked."""
        if len(self._parts) == 1:
            return [self._asked_on(self._parts[0])]
        addresses = [self._place.address(part, hello) for part, hello in zip(self._parts, hellos, strict=True)]
        per_node = max(1, self._asked.launch.resources.gpus)
        launch = with_hostfile(self._asked.launch, addresses, per_node)
        found: list[Asked] = []
        for rank, part in enumerate(self._parts):
            told = place_environment(rank, addresses, hellos[0].port, per_node)
            name = launch.name if rank == 0 else f"{launch.name}.{rank}"
            found.append(replace(self._asked_on(part), launch=replace(launch, name=name), extra={**self._asked.extra, **told}))
        return found

    def _asked_on(self, part: Share) -> Asked:
        return replace(self._asked, cores=part.cores or None, gpus=tuple(map(int, part.gpus)) or None)

    def _results(self, channels: Sequence[Channel]) -> list[Completed]:
        if len(channels) == 1:
            return [self._result(0, channels[0])]
        answers: list[Completed | Lost | None] = [None] * len(channels)

        def wait(number: int) -> None:
            try:
                answers[number] = completed = self._result(number, channels[number])
                if completed.returncode != 0:
                    self._enough.set()
            except Lost as error:
                answers[number] = error
                self._enough.set()

        threads = [threading.Thread(target=wait, args=(number,), daemon=True) for number in range(len(channels))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for answer in answers:
            if isinstance(answer, Lost):
                raise answer
        return [answer for answer in answers if isinstance(answer, Completed)]

    def _result(self, number: int, channel: Channel) -> Completed:
        try:
            return channel.result(self._enough, self._asked.settings.grace_s, self._asked.packed is not None)
        except Lost as error:
            if not self._stopped.is_set():
                self._place.lost(self._parts[number], str(error))
            raise

    def _joined(self, answers: Sequence[Completed], hellos: Sequence[Hello]) -> Completed:
        """One answer for all machines: the first one's, or the first failure that was not caused by ending the others."""
        ended = [
            _placed(part, hello, self._place.ended(part, answer)) for part, hello, answer in zip(self._parts, hellos, answers, strict=True)
        ]
        if self._stopped.is_set() or len(ended) == 1:
            return ended[0] if len(ended) == 1 else replace(ended[0], returncode=None, cancelled=True)
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


def _placed(part: Share, hello: Hello, completed: Completed) -> Completed:
    """With the machine among the circumstances: its name, and how fast it was just before."""
    conditions = {**completed.conditions, PROBE: round(hello.probe_s, 5)}
    return replace(completed, machine=completed.machine or part.machine, conditions=conditions)


__all__ = ["Attempts", "Place", "RemoteTrial"]
