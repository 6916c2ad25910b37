"""Trials on the machines of a Ray cluster, or on a Ray of our own on this one."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from autoscout.common.gpus import VISIBLE_GPUS, gpu_environment, present_gpus
from autoscout.core.errors import Fault, LaunchError, require
from autoscout.core.launch import Completed, Launch, Resources
from autoscout.core.protocols import Job
from autoscout.execute._shared.allocation import Pool, Share
from autoscout.execute._shared.call import pack_call, refuse_while_reimporting, unpacked
from autoscout.execute._shared.executor import QueuedExecutor, check_launch
from autoscout.execute._shared.machine import machine_cores
from autoscout.execute._shared.queue import Run
from autoscout.execute._shared.sharing import GpuOptions, GpuSharing, OnGpus
from autoscout.execute._shared.supervisor.client import STUCK_S, LaunchSettings, Supervised

LOOK_S = 0.2  # how often a launch that waits for its machine looks whether it was cancelled

_lock = threading.Lock()
_users = 0  # executors of this process that use the connection we made


@dataclass(frozen=True, kw_only=True)
class RayOptions(GpuOptions):
    """Which Ray to use, and how it treats a trial; Ray holds back trials for which no machine has room.

    Attributes:
        address: Of the cluster: `auto`, `HOST:PORT` or `ray://HOST:PORT`. Empty starts a Ray on this machine, which ends with AutoScout.
        cpus: CPUs of a Ray that is started here; all that this process may use when None.
    """

    address: str = ""
    cpus: int | None = None

    def __post_init__(self) -> None:
        cpus = (self.cpus is None or (self.cpus >= 1 and not self.address), "must be at least 1, and is for a Ray started here")
        require("executor ray", self, self.checks() | {"cpus": cpus})


class RayExecutor(QueuedExecutor):
    """Runs trials on a Ray cluster, each under a supervisor on the machine that Ray finds for it.

    A trial runs in an actor with the cores, GPUs and memory the launch asks for. Inside it the supervisor of the local executor
    holds the limits and ends all descendants; when the actor, its machine or AutoScout dies, the trial goes with it. AutoScout must
    be installed on every machine of the cluster; environment and paths are those of the machine. Ray is started or joined by the
    first launch. The GPUs that Ray hands to a trial are leased on their machine too, because other studies there need not use this Ray.
    """

    requires: ClassVar[tuple[str, ...]] = ("ray",)

    def __init__(self, options: RayOptions | None = None) -> None:
        self.options = options or RayOptions()
        super().__init__(self.options, _Slots(self.options.slots), "ray")
        self._actors = _Actors()
        self._connecting = threading.Lock()
        self._connected = self._joined = self._closed = False

    def submit(self, launch: Launch) -> Job:
        refuse_while_reimporting()
        check_launch(launch)
        packed = None if launch.call is None else pack_call(launch.call, launch.name)
        self._connect()
        faults = _too_large(launch)
        if faults:
            raise LaunchError(faults)
        bare = replace(launch, call=None)  # the call travels packed: only the process that runs it needs its code
        asked = _Asked(launch=bare, settings=self._settings, packed=packed, sharing=self.options.sharing(()))
        return self._queue.submit(launch, lambda _: _Trial(asked, self._actors))

    def close(self) -> None:
        self._queue.close()
        with self._connecting:
            if self._joined:
                self._actors.dismiss()
            self._closed = True
            if self._connected:
                self._connected = False
                _leave()
        super().close()

    def _connect(self) -> None:
        with self._connecting:
            if self._closed:
                raise LaunchError("the ray executor is closed")
            if not self._joined:
                self._connected = _join(self.options)
                self._joined = True


class _Slots(Pool):
    """Counts trials only: cores, GPUs and memory are Ray's to hand out."""

    def __init__(self, slots: int) -> None:
        super().__init__(slots)

    def faults(self, resources: Resources, where: str) -> list[Fault]:  # noqa: ARG002 - Ray knows, see `_too_large`
        return []

    def take(self, resources: Resources) -> Share | None:  # noqa: ARG002
        return super().take(Resources())


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What an actor is asked to run, and how; the GPUs are those that Ray hands to it."""

    launch: Launch
    settings: LaunchSettings
    packed: bytes | None
    sharing: GpuSharing

    def run(self) -> Run:
        if not self.launch.resources.gpus:
            return self._supervised(Share())
        gpus = present_gpus()
        return OnGpus(self.launch, Share(gpus=gpus), replace(self.sharing, gpus=gpus), self._supervised)

    def _supervised(self, share: Share, held: Sequence[int] = ()) -> Supervised:
        chosen = share.gpus and not any(name in self.launch.env for name in VISIBLE_GPUS)
        extra = gpu_environment(share.gpus) if chosen else {}  # those that are leased, whatever order CUDA counts in
        return Supervised(self.launch, share, self.settings, extra, self.packed, unpack=False, held=held)


class _Worker:
    """In the actor: launches under their supervisor, one after the other."""

    def __init__(self) -> None:
        self._run: Run | None = None

    def prepare(self, asked: _Asked) -> None:
        self._run = asked.run()

    def run(self) -> Completed:
        assert self._run is not None
        return self._run.run()

    def stop(self) -> None:
        if self._run is not None:
            self._run.stop()


class _Actors:
    """Actors between two launches: starting one takes longer than many a trial."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[Resources, list[Any]] = {}

    def take(self, resources: Resources) -> Any:
        """An actor with these resources; idle ones with others give theirs back to Ray."""
        import ray

        with self._lock:
            mine = self._idle.pop(resources, [])
            actor = mine.pop() if mine else None
            others = [each for actors in self._idle.values() for each in actors] if actor is None else []
            if others:
                self._idle.clear()
            if mine:
                self._idle[resources] = mine
        for each in others:
            ray.kill(each)
        if actor is not None:
            return actor
        limits = {"memory": int(resources.memory_gb * 1024**3)} if resources.memory_gb else {}
        kind = ray.remote(_Worker).options(num_cpus=resources.cpus, num_gpus=resources.gpus, max_concurrency=2, max_restarts=0, **limits)
        return kind.remote()

    def give(self, resources: Resources, actor: Any) -> None:
        with self._lock:
            self._idle.setdefault(resources, []).append(actor)

    def dismiss(self) -> None:
        import ray

        with self._lock:
            idle, self._idle = self._idle, {}
        for actor in (each for actors in idle.values() for each in actors):
            ray.kill(actor)


class _Trial:
    """On our side: one launch on one of our actors."""

    def __init__(self, asked: _Asked, actors: _Actors) -> None:
        self._asked = asked
        self._actors = actors
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> Completed:
        import ray

        if self._stopped.is_set():
            return Completed(returncode=None, cancelled=True)
        actor = self._actors.take(self._asked.launch.resources)
        answered: Completed | None = None
        try:
            answered = self._wait(ray, actor)
            return answered or Completed(returncode=None, cancelled=True)
        except ray.exceptions.RayError as error:
            reason = next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)
            return Completed(
                returncode=None, cancelled=self._stopped.is_set(), error=f"the Ray worker of this launch was lost: {reason[:500]}"
            )
        finally:
            if answered is not None:
                self._actors.give(self._asked.launch.resources, actor)
            else:
                ray.kill(actor)

    def _wait(self, ray: Any, actor: Any) -> Completed | None:
        """What the actor answers; None when it was cancelled before it had a machine, or does not answer any more."""
        prepared = actor.prepare.remote(self._asked)
        while not ray.wait([prepared], timeout=LOOK_S)[0]:  # no machine has room yet
            if self._stopped.is_set():
                return None
        ray.get(prepared)
        result = actor.run.remote()
        give_up_s: float | None = None
        while not ray.wait([result], timeout=LOOK_S)[0]:
            if self._stopped.is_set() and give_up_s is None:
                actor.stop.remote()
                give_up_s = time.monotonic() + self._asked.settings.grace_s + STUCK_S
            if give_up_s is not None and time.monotonic() > give_up_s:
                return None
        completed: Completed = ray.get(result)
        return unpacked(completed) if self._asked.packed is not None else completed


def _join(options: RayOptions) -> bool:
    """Start or join Ray, or use the connection this process has; whether it is ours to end."""
    import ray

    global _users  # noqa: PLW0603 - Ray has one connection per process
    with _lock:
        if ray.is_initialized() and _users == 0:
            return False  # the caller's own: it stays as it is
        if _users == 0:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            # Trials that ask for no GPU may still look at what there is, as on the local executor.
            os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
            # A worker that exits would kill our supervisor, which then could not end the descendants of its trial.
            os.environ.setdefault("RAY_kill_child_processes_on_worker_exit", "false")
            common: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
            _refuse_silent(options.address)
            own = {"num_cpus": options.cpus or len(machine_cores()), "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
            try:
                ray.init(**common, **({"address": options.address} if options.address else {"address": "local", **own}))
            except Exception as error:  # its errors have no common class
                raise _unreachable(options.address, error) from error
        _users += 1
        return True


def _refuse_silent(address: str) -> None:
    """Ray ends the whole process when nothing answers at an address, so this looks first."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        try:
            socket.create_connection((host, int(port)), timeout=10.0).close()
        except OSError as error:
            raise _unreachable(address, error) from error


def _unreachable(address: str, error: Exception) -> LaunchError:
    reason = next(iter(str(error).splitlines()), type(error).__name__)
    return LaunchError(
        Fault(
            where="executor ray",
            field="address",
            value=address or "a Ray started here",
            rule=f"Ray cannot be reached: {reason}",
            fix="Check the address with `ray status`, or leave it out to start Ray on this machine",
        )
    )


def _leave() -> None:
    import ray

    global _users  # noqa: PLW0603
    with _lock:
        _users -= 1
        if _users == 0:
            ray.shutdown()


def _too_large(launch: Launch) -> list[Fault]:
    """What no machine of the cluster has: such a launch would wait for ever."""
    import ray

    listed: Any = ray.nodes  # untyped in some releases
    nodes: list[Mapping[str, float]] = [node["Resources"] for node in listed() if node["Alive"]]
    wanted = launch.resources
    asked = (
        ("cpus", wanted.cpus, "CPU", 1.0),
        ("gpus", wanted.gpus, "GPU", 1.0),
        ("memory_gb", wanted.memory_gb or 0.0, "memory", 1024.0**3),
    )
    found = []
    for field, amount, name, unit in asked:
        most = max((node.get(name, 0.0) for node in nodes), default=0.0) / unit
        if amount > most or amount < 0:
            found.append(
                Fault(
                    where=f"launch {launch.name}".strip(),
                    field=f"resources.{field}",
                    value=f"{amount:g}",
                    rule="must not be negative" if amount < 0 else f"no machine of the Ray cluster has more than {most:.4g}",
                    fix="" if amount < 0 else "Ask for less, add machines, or exclude such configurations from the space",
                )
            )
    return found


__all__ = ["RayExecutor"]
