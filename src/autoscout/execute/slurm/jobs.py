"""Where the trials of the Slurm executor run: on a job of their own, or on the allocation of the study."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Sequence
from dataclasses import replace

from autoscout.core.errors import LaunchError
from autoscout.core.launch import Completed, Resources
from autoscout.execute._shared.allocation import Share
from autoscout.execute._shared.patience import Patience
from autoscout.execute._shared.remote.agent import Hello
from autoscout.execute._shared.remote.channel import Channel, Lost, agent_command
from autoscout.execute._shared.remote.order import GIVEN_GPUS
from autoscout.execute.slurm.clients import ask, client_environment, granted_gpus, is_controller_up
from autoscout.execute.slurm.granted import Granted, StudyJobs
from autoscout.execute.slurm.options import SlurmOptions

AGAIN_S = 5.0  # how long to wait for a controller that does not answer


class OwnJob:
    """A job for one launch: asked for when the launch begins, given back when it ends."""

    def __init__(self, options: SlurmOptions, resources: Resources, jobs: StudyJobs, patience: Patience) -> None:
        self._options = options
        self._resources = resources
        self._jobs = jobs
        self._patience = patience
        self._granted: Granted | None = None
        self._gpus: dict[str, tuple[str, ...]] = {}

    def take(self, share: Share, stopped: threading.Event) -> tuple[Share, ...] | None:  # noqa: ARG002 - Slurm chooses the nodes
        while self._granted is None:
            self._granted = Granted(self._options.asks(self._resources), self._jobs)
            if not waited(self._granted, stopped, self._patience):
                self._granted.give_back()
                self._granted = None
            if stopped.is_set():
                return None
        if self._resources.gpus:
            self._gpus = granted_gpus(self._granted.job)
        return tuple(Share(machine=node) for node in self._granted.nodes)

    def open(self, part: Share) -> Channel:
        assert self._granted is not None
        return open_step(self._options, self._granted.job, part.machine, self._resources, self._gpus.get(part.machine, ()))

    def address(self, part: Share, hello: Hello) -> str:  # noqa: ARG002 - a node's name need not be known to its neighbours
        return hello.address

    def ended(self, part: Share, completed: Completed) -> Completed:  # noqa: ARG002
        return completed

    def lost(self, part: Share, why: str) -> None:
        """Nothing to do: the next try gets a job of its own."""

    def give(self) -> None:
        if self._granted is not None:
            self._granted.give_back()


class HeldAllocation:
    """The allocation of a study: asked for by the first launch, again when it is over, and given back at the end."""

    def __init__(self, options: SlurmOptions, jobs: StudyJobs, patience: Patience) -> None:
        self.options = options
        self._jobs = jobs
        self._patience = patience
        self._lock = threading.Lock()
        self._current: Granted | None = None
        self._users: dict[Granted, int] = {}
        self._longest_s = 0.0
        self._closed = False

    def take(self, stopped: threading.Event) -> Granted | None:
        """The allocation to use; None when `stopped` came first."""
        while not stopped.is_set():
            unused: Granted | None = None
            with self._lock:
                if self._closed:
                    return None
                if self._current is None or self._current.is_over or self._is_ending_soon(self._current):
                    # Launches that still run on the old one keep it; it is given back with the last of them.
                    unused = self._current if self._current not in self._users else None
                    self._current = Granted(self.options.asks(self.options.held()), self._jobs)
                granted = self._current
                self._users[granted] = self._users.get(granted, 0) + 1
            if unused is not None:
                unused.give_back()  # the new one may wait for its nodes
            good = False
            try:
                good = waited(granted, stopped, self._patience)
            finally:
                if not good:
                    self.give(granted)
            if good:
                return granted
        return None

    def give(self, granted: Granted, wall_s: float = 0.0) -> None:
        """A launch has ended on it."""
        with self._lock:
            self._longest_s = max(self._longest_s, wall_s)
            self._users[granted] -= 1
            unused = self._users[granted] == 0
            old = unused and granted is not self._current
            if unused:
                del self._users[granted]
        if old:
            granted.give_back()

    def retire(self, granted: Granted) -> None:
        """Something of it was lost: start nothing there any more. Slurm notices a dead node much later than we do."""
        with self._lock:
            if self._current is granted:
                self._current = None

    def close(self) -> None:
        with self._lock:
            self._closed = True
            all_of_them = {*self._users, *([self._current] if self._current is not None else [])}
        for granted in all_of_them:
            granted.give_back()

    def _is_ending_soon(self, granted: Granted) -> bool:
        """Whether a trial like the longest so far would not end before the walltime, though it would on a fresh allocation."""
        whole_s = None if self.options.time_min is None else self.options.time_min * 60
        return whole_s is not None and self._longest_s < whole_s and granted.age_s > whole_s - self._longest_s


class OnAllocation:
    """One launch on the allocation of the study. The pool numbers its nodes; which ones they are is known when it is granted."""

    def __init__(self, held: HeldAllocation) -> None:
        self._held = held
        self._granted: Granted | None = None
        self._wall_s = 0.0

    def take(self, share: Share, stopped: threading.Event) -> tuple[Share, ...] | None:
        self._granted = self._held.take(stopped)
        if self._granted is None:
            return None
        return tuple(replace(part, machine=self._granted.nodes[int(part.machine)]) for part in share.parts)

    def open(self, part: Share) -> Channel:
        assert self._granted is not None
        # Each step may use all that the study holds on the node, and is told which part of it is its own: Slurm would queue
        # steps that it takes for too large, and place them without regard for what waits.
        return open_step(self._held.options, self._granted.job, part.machine, self._held.options.held())

    def address(self, part: Share, hello: Hello) -> str:  # noqa: ARG002
        return hello.address

    def ended(self, part: Share, completed: Completed) -> Completed:  # noqa: ARG002
        self._wall_s = max(self._wall_s, completed.wall_s)
        return completed

    def lost(self, part: Share, why: str) -> None:  # noqa: ARG002
        if self._granted is not None:
            self._held.retire(self._granted)

    def give(self) -> None:
        if self._granted is not None:
            self._held.give(self._granted, self._wall_s)


def open_step(options: SlurmOptions, job: str, node: str, resources: Resources, gpus: Sequence[str] = ()) -> Channel:
    """A way to a node of an allocation."""
    command = [*options.step(job, node, resources), *agent_command(options.interpreter, options.silence_s)]
    environment = client_environment(os.environ) | ({GIVEN_GPUS: ",".join(gpus)} if gpus else {})
    return Channel(command, environment, f"node {node} of job {job}", options.silence_s)


def waited(granted: Granted, stopped: threading.Event, patience: Patience) -> bool:
    """Whether it was granted; False when `stopped` came first, or Slurm did not answer or has forgotten it and is to be asked again.

    Raises:
        Lost: Slurm refused.
    """
    try:
        return granted.wait(stopped, lambda waited_s: tell_pending(patience, waited_s, granted.name))
    except Lost:
        if is_controller_up():
            raise
    patience.tell(math.inf, "controller", lambda: "waiting for Slurm: its controller does not answer")
    stopped.wait(AGAIN_S)
    return False


def tell_pending(patience: Patience, waited_s: float, name: str) -> None:
    """Say what Slurm waits for."""

    def say() -> str:
        try:
            rows = [line.split("|", 1) for line in ask("squeue", "--me", f"--name={name}", "--noheader", "--format=%A|%T %r").splitlines()]
        except LaunchError as error:
            return f"waiting for Slurm: {error}"
        listed = ", ".join(f"job {job} ({state.lower()})" for job, state in rows[:5])
        return f"waiting for Slurm for {waited_s:.0f} s: {listed or 'its job is not listed yet'}"

    patience.tell(waited_s, "pending", say)


__all__ = ["HeldAllocation", "OnAllocation", "OwnJob"]
