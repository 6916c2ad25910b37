"""A scheduler whose settings are fields of Kubernetes objects: what all of them have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import yaml
from pydantic import Field

from autosched.live._shared import kubernetes
from autosched.live._shared.kubernetes import Json, KubernetesJob, Objects, Setting
from autosched.live_scheduler import ChangePlan, ClusterState, LiveError, LiveScheduler
from autosched.schedulers.fifo import FIFO
from autosched.sim.cluster import Cluster
from autoscout.common.fields import Block
from autoscout.core.clock import Clock, RealClock
from autoscout.core.config import Config
from autoscout.core.errors import Fault
from autoscout.space import Space


class KubernetesLiveOptions(Block):
    """Options that every such scheduler has.

    Attributes:
        resource: What a GPU is called.
        objects: A file of objects instead of a cluster.
        command: kubectl and its arguments.
        apply: Whether kubectl may change anything.
        timeout_s: How long kubectl may take.
    """

    resource: str = "nvidia.com/gpu"
    objects: str = ""
    command: list[str] = Field(default=["kubectl"], min_length=1)
    apply: bool = False
    timeout_s: float = Field(30.0, gt=0)


class KubernetesScheduler(LiveScheduler):
    """Simulated as first come, first served; its one knob is whether jobs may overtake.

    Attributes:
        jobs: The kind of object that stands for a job.

    Args:
        options: What the operator says.
        settings: Where each setting is.
        clock: Whose time it lives in.
    """

    model = "fifo"
    pinned = Config(placement="consolidated")
    jobs: ClassVar[str]

    def __init__(self, options: KubernetesLiveOptions, settings: Sequence[Setting], clock: Clock | None) -> None:
        self.clock: Clock = clock or RealClock()
        self._resource = options.resource
        self._settings = settings
        self._objects: Objects = (
            kubernetes.Manifests.read(Path(options.objects))
            if options.objects
            else kubernetes.Kubectl(command=tuple(options.command), timeout_s=options.timeout_s, may_change=options.apply)
        )

    @abstractmethod
    def _job(self, item: Json) -> KubernetesJob:
        """A job from the object that stands for it."""

    @abstractmethod
    def _faults(self, key: str, item: Json) -> list[Fault]:
        """What is wrong with an object that a plan would write."""

    def space(self, cluster: Cluster) -> Space:
        space = FIFO.space(cluster)
        return Space([space.knobs["overtake"], space.knobs["placement"].only("consolidated")])

    def settings(self) -> Config:
        with _understood("settings"):
            return kubernetes.settings_of(self._objects, self._settings)

    def look(self) -> ClusterState:
        at_s = self.clock.now_s()
        with _understood(self.jobs):
            jobs = [self._job(item) for item in self._objects.all(self.jobs)]
            snapshot = kubernetes.snapshot_of(jobs, at_s)
        with _understood("nodes"):
            cluster = kubernetes.nodes_of(self._objects, self._resource)
        return ClusterState(at_s=at_s, cluster=cluster, snapshot=snapshot, events=kubernetes.events_of(jobs), settings=self.settings())

    def plan(self, after: Config) -> ChangePlan:
        with _understood("plan"):
            return kubernetes.plan_of(self._objects, self._settings, after, self._faults)

    def apply(self, plan: ChangePlan) -> None:
        kubernetes.send(self._objects, self._settings, plan.data["patches"])

    def restore(self, plan: ChangePlan) -> None:
        if self.stored(plan) != "before":
            kubernetes.send(self._objects, self._settings, plan.data["back"])

    def stored(self, plan: ChangePlan) -> str:
        return kubernetes.stored_of(self.settings(), plan)


@contextmanager
def _understood(what: str) -> Iterator[None]:
    """An object of another shape than those we know is an answer that is not understood, and no reason to end."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, yaml.YAMLError) as error:
        rule = f"is not as Kubernetes describes it: {type(error).__name__}: {error}"
        raise LiveError(Fault(where=what, rule=rule)) from error


__all__ = ["KubernetesLiveOptions", "KubernetesScheduler"]
