"""Actors: where launches run on a Ray cluster. One is kept between launches, since starting it takes longer than many a trial."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from autoscout.core.launch import Completed, Resources
from autoscout.core.trial import MACHINE_PROBE
from autoscout.execute._shared.queue import LaunchRun
from autoscout.execute._shared.remote.order import LaunchOrder
from autoscout.execute._shared.remote.speed import probe_s
from autoscout.execute.ray.options import RayOptions


class Worker:
    """Runs launches under their supervisor inside an actor, one after the other."""

    def __init__(self) -> None:
        self._run: LaunchRun | None = None
        if not _is_users_own(
            "OMP_NUM_THREADS"
        ):  # Ray sets it to the CPUs of the actor; the trial's share of the machine says what is right
            os.environ.pop("OMP_NUM_THREADS", None)

    def prepare(self, order: LaunchOrder) -> None:
        self._run = order.run()

    def run(self) -> Completed:
        import ray

        assert self._run is not None
        node, speed = str(ray.get_runtime_context().get_node_id()), {MACHINE_PROBE: round(probe_s(), 5)}
        completed = self._run.run()
        return replace(completed, machine=f"{socket.gethostname()}/{node[:8]}", conditions={**completed.conditions, **speed})

    def stop(self) -> None:
        if self._run is not None:
            self._run.stop()


class Actors:
    """Idle actors, and how many are waited for.

    An idle actor keeps its share of a machine, so it is kept only while nobody waits for room: those who wait for one with the same
    resources take it over, and for others it is ended.
    """

    def __init__(self, options: RayOptions) -> None:
        self.options = options
        self._lock = threading.Lock()
        self._idle: dict[Resources, list[Any]] = {}
        self._demand: dict[Resources, int] = {}

    def take(self, resources: Resources) -> Any:
        """An actor with these resources, perhaps one for which Ray still has to find room; see `claim` and `started`."""
        with self._lock:
            self._demand[resources] = self._demand.get(resources, 0) + 1
        actor = self.claim(resources)
        if actor is not None:
            return actor
        self.make_room(resources)
        return self._new(resources)

    def claim(self, resources: Resources) -> Any | None:
        """An idle actor with these resources, if there is one."""
        with self._lock:
            mine = self._idle.get(resources)
            return mine.pop() if mine else None

    def started(self, resources: Resources) -> None:
        """Whoever took or claimed an actor has one that runs."""
        with self._lock:
            self._demand[resources] -= 1

    def give(self, resources: Resources, actor: Any) -> None:
        """An actor that is not needed any more."""
        import ray

        with self._lock:
            others_wait = any(count > 0 for other, count in self._demand.items() if other != resources)
            mine_wait = self._demand.get(resources, 0) > 0
            keep = mine_wait or not others_wait
            if keep:
                self._idle.setdefault(resources, []).append(actor)
        if not keep:
            ray.kill(actor)

    def make_room(self, resources: Resources) -> None:
        """End idle actors with other resources, unless somebody waits for one of them."""
        with self._lock:
            spare = [other for other in self._idle if other != resources and not self._demand.get(other)]
        self._end(spare)

    def dismiss(self) -> None:
        """End all that are idle."""
        with self._lock:
            kinds = list(self._idle)
        self._end(kinds)

    def _end(self, kinds: Sequence[Resources]) -> None:
        import ray

        with self._lock:
            ended = [actor for kind in kinds for actor in self._idle.pop(kind, [])]
        for actor in ended:
            ray.kill(actor)

    def _new(self, resources: Resources) -> Any:
        import ray

        options: dict[str, Any] = {"memory": int(resources.memory_gb * 1024**3)} if resources.memory_gb else {}
        if self.options.gpu_type and resources.gpus:
            options["accelerator_type"] = self.options.gpu_type
        if self.options.resources:
            options["resources"] = dict(self.options.resources)
        kind = ray.remote(Worker).options(num_cpus=resources.cpus, num_gpus=resources.gpus, max_concurrency=2, max_restarts=0, **options)
        return kind.remote()


def _is_users_own(name: str) -> bool:
    """Whether a variable was set when Ray was started on this machine: then its daemon, our parent, has it too."""
    try:
        return f"{name}=".encode() in Path(f"/proc/{os.getppid()}/environ").read_bytes()
    except OSError:
        return False
