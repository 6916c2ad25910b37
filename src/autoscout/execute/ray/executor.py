"""The Ray executor, and one launch of it."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from dataclasses import replace
from typing import Any, ClassVar

from autoscout.core.errors import ClusterError, Fault, LaunchError
from autoscout.core.launch import Completed, Launch, Resources
from autoscout.core.log import NOTICES, logger
from autoscout.core.protocols import Job
from autoscout.execute._shared.allocation import SlotPool
from autoscout.execute._shared.call import pack_call, refuse_while_reimporting, unpacked
from autoscout.execute._shared.executor import QueuedExecutor, check_launch
from autoscout.execute._shared.patience import Patience
from autoscout.execute._shared.queue import Requeue
from autoscout.execute._shared.remote.nodes import ClusterNode, choose_kind, node_faults
from autoscout.execute._shared.remote.order import LaunchOrder
from autoscout.execute._shared.remote.trial import Attempts
from autoscout.execute._shared.supervisor.client import STUCK_S
from autoscout.execute.ray.actors import Actors
from autoscout.execute.ray.cluster import Head, join, leave
from autoscout.execute.ray.options import RayOptions

GPU_TYPE = "accelerator_type:"  # the resources that say which type of GPU a machine has begin like this
LOOK_S = 0.2  # how often a launch that waits for its machine looks whether it was cancelled

notices = logger(NOTICES)


class RayExecutor(QueuedExecutor):
    """Runs trials on a Ray cluster, each under a supervisor on the machine that Ray finds for it.

    A trial runs in an actor with the cores, GPUs and memory the launch asks for. Inside it the supervisor of the local executor
    holds the limits and ends all descendants; when the actor, its machine or AutoScout dies, the trial goes with it, and runs again
    elsewhere where AutoScout lives. AutoScout must be installed on every machine of the cluster; environment and paths are those of
    the machine. Ray is started or joined by the first launch. The cores and GPUs that Ray counts for a trial are leased on their
    machine too: Ray does not say which cores, and other studies there need not use this Ray.
    """

    requires: ClassVar[tuple[str, ...]] = ("ray",)

    def __init__(self, options: RayOptions | None = None) -> None:
        self.options = options or RayOptions()
        super().__init__(self.options, SlotPool(self.options.slots), "ray")
        self._actors = Actors(self.options)
        self._patience = Patience()
        self._connecting, self._choosing = threading.Lock(), threading.Lock()
        self._head: Head | None = None
        self._unreachable: ClusterError | None = None
        self._ours = self._closed = False

    def submit(self, launch: Launch) -> Job:
        refuse_while_reimporting()
        check_launch(launch)
        packed = None if launch.call is None else pack_call(launch.call, launch.name)
        head = self._connect()
        if head.gone.is_set():
            raise head.error()
        faults = head.ask(lambda: self._faults(launch))
        if faults:
            raise LaunchError(faults)
        bare = replace(launch, call=None)  # the call travels packed: only the process that runs it needs its code
        order = LaunchOrder(launch=bare, settings=self._settings, packed=packed, sharing=self.options.sharing(()))
        attempts = Attempts(most=self.options.attempts)
        return self._queue.submit(launch, lambda _: _Trial(order, self._actors, head, attempts, self._patience))

    def close(self) -> None:
        self._queue.close()
        with self._connecting:
            head, self._head, self._closed = self._head, None, True
            if head is not None:
                with contextlib.suppress(ClusterError):
                    head.ask(self._actors.dismiss)
                if self._ours:
                    leave(head)
                head.close()
        super().close()

    def lost(self) -> ClusterError | None:
        head = self._head
        return head.error() if head is not None and head.gone.is_set() else None

    def _connect(self) -> Head:
        with self._connecting:
            if self._closed:
                raise LaunchError("the ray executor is closed")
            if self._unreachable is not None:  # other threads wait for the same answer
                raise self._unreachable
            if self._head is None:
                try:
                    self._head, self._ours = join(self.options)
                except ClusterError as error:
                    self._unreachable = error
                    raise
            return self._head

    def _faults(self, launch: Launch) -> list[Fault]:
        """What no machine of the cluster has: such a launch would wait for ever."""
        where = f"launch {launch.name}".strip()
        if launch.resources.nodes > 1:
            fix = "Use the executor slurm or hosts for launches on several machines"
            rule = "the ray executor runs each launch on one machine"
            return [Fault(where=where, field="resources.nodes", value=str(launch.resources.nodes), rule=rule, fix=fix)]
        self._choose_kind(launch.resources)
        if self.options.elastic and min(launch.resources.cpus, launch.resources.gpus) >= 0:
            return []
        return node_faults(ray_nodes(self.options, launch.resources), launch.resources, where, "the Ray cluster")

    def _choose_kind(self, resources: Resources) -> None:
        """Use GPUs of one type only, where there are several and the user named none."""
        with self._choosing:  # not the lock that `close` takes: Ray may never answer
            if not resources.gpus or self.options.gpu_type or self.options.kinds == "any":
                return
            chosen = choose_kind(ray_nodes(self.options, resources), resources)
            if chosen is not None:
                best, others = chosen
                notices.warning("trials run on GPUs of one type, %s; not used: %s", best, ", ".join(others))
                self.options = self._actors.options = replace(self.options, gpu_type=best)


def ray_nodes(options: RayOptions, resources: Resources) -> list[ClusterNode]:
    """The machines of the cluster that are there now and have what the options ask for such a launch."""
    import ray

    listed: Any = ray.nodes  # untyped in some releases
    needed = [*options.resources, *([f"{GPU_TYPE}{options.gpu_type}"] if options.gpu_type and resources.gpus else [])]
    nodes: list[ClusterNode] = []
    for node in listed():
        there = node["Resources"]
        if node["Alive"] and all(name in there for name in needed):
            nodes.append(
                ClusterNode(
                    name=node["NodeID"],
                    cores=int(there.get("CPU", 0)),
                    gpus=int(there.get("GPU", 0)),
                    memory_gb=there.get("memory", 0.0) / 1024**3,
                    kind=",".join(sorted(name.removeprefix(GPU_TYPE) for name in there if name.startswith(GPU_TYPE))),
                )
            )
    return nodes


class _Trial:
    """One launch on one of our actors, as this process sees it."""

    def __init__(self, order: LaunchOrder, actors: Actors, head: Head, attempts: Attempts, patience: Patience) -> None:
        self._order = order
        self._actors = actors
        self._head = head
        self._attempts = attempts
        self._patience = patience
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> Completed:
        try:
            return self._head.ask(self._run)
        except ClusterError:  # the study ends: nothing was learned of this configuration
            return Completed(returncode=None, cancelled=True)

    def _run(self) -> Completed:
        import ray

        if self._stopped.is_set():
            return Completed(returncode=None, cancelled=True)
        resources = self._order.launch.resources
        actor = self._actors.take(resources)
        answered: Completed | None = None
        try:
            actor = self._prepared(ray, actor)
            answered = self._wait(ray, actor)
            return answered or Completed(returncode=None, cancelled=True)
        except ray.exceptions.RayError as error:
            return self._lost(error)
        finally:
            if answered is not None:
                self._actors.give(resources, actor)
            elif not self._head.gone.is_set():
                ray.kill(actor)

    def _lost(self, error: Exception) -> Completed:
        """Have the launch run again, unless it lost too many workers."""
        if self._stopped.is_set() or self._head.is_gone():
            return Completed(returncode=None, cancelled=True)
        reason = next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)
        said = f"the Ray worker of this launch was lost: {reason[:500]}"
        self._attempts.reasons.append(said)
        if len(self._attempts.reasons) >= self._attempts.most:
            return Completed(returncode=-signal.SIGKILL, error=f"{said} ({len(self._attempts.reasons)} times)")
        notices.warning("launch %s runs again: %s", self._order.launch.name, said[:300])
        raise Requeue from error

    def _prepared(self, ray: Any, actor: Any) -> Any:
        """The actor that will run the launch: the one that was asked for, or one that became idle while that one waited for room."""
        started_s, resources = time.monotonic(), self._order.launch.resources
        try:
            prepared = actor.prepare.remote(self._order)
            while not ray.wait([prepared], timeout=LOOK_S)[0]:
                if self._stopped.is_set() or self._head.gone.is_set():
                    return actor
                idle = self._actors.claim(resources)
                if idle is not None:
                    ray.kill(actor)
                    actor, prepared = idle, idle.prepare.remote(self._order)
                else:
                    self._actors.make_room(resources)
                self._patience.tell(time.monotonic() - started_s, "room", self._say)
            ray.get(prepared)
            return actor
        finally:
            self._actors.started(resources)

    def _say(self) -> str:
        name, resources = self._order.launch.name, self._order.launch.resources
        return f"launch {name} waits for a machine of the Ray cluster with {resources.cpus} CPUs and {resources.gpus} GPUs free"

    def _wait(self, ray: Any, actor: Any) -> Completed | None:
        """What the actor answers; None when it was cancelled before it had a machine, or does not answer any more."""
        if self._stopped.is_set() or self._head.gone.is_set():
            return None
        result = actor.run.remote()
        give_up_s: float | None = None
        while not ray.wait([result], timeout=LOOK_S)[0]:
            if self._head.gone.is_set():
                return None
            if self._stopped.is_set() and give_up_s is None:
                actor.stop.remote()
                give_up_s = time.monotonic() + self._order.settings.grace_s + STUCK_S
            if give_up_s is not None and time.monotonic() > give_up_s:
                return None
        completed: Completed = ray.get(result)
        return unpacked(completed) if self._order.packed is not None else completed


__all__ = ["RayExecutor"]
