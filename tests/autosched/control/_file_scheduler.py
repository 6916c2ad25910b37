"""A scheduler that keeps its settings in a file and can be told to fail: what the controller's own rules are tested on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from autosched.live_scheduler import ChangePlan, ClusterState, LiveError, LiveScheduler
from autosched.schedulers.slurm import Slurm as Model
from autosched.sim.cluster import Cluster
from autosched.sim.snapshot import Snapshot
from autosched.sim.trace import Trace
from autoscout.core.clock import Clock, VirtualClock
from autoscout.core.config import Config
from autoscout.core.errors import Fault
from autoscout.space import Space

START = Config(priority_weight_age=1000, priority_weight_job_size=0)


class FileScheduler(LiveScheduler):
    """Settings in a file; `running` is what is in force, as a daemon would have read it."""

    model = "slurm"

    def __init__(self, path: Path, start_s: float = 1_000_000.0) -> None:
        self.path = path
        self.clock: Clock = VirtualClock(start_s)
        self.down = self.deaf = self.refuses = False
        self.reloads = 0
        if not path.exists():
            path.write_text(json.dumps(START.to_json()))
        self.running = Config(json.loads(path.read_text()))

    def _answer(self) -> None:
        if self.down:
            raise LiveError(Fault(where="daemon", rule="did not answer"))

    def space(self, cluster: Cluster) -> Space:
        space = Model.space(cluster)
        return Space([space.knobs["priority_weight_age"], space.knobs["priority_weight_job_size"]])

    def look(self) -> ClusterState:
        self._answer()
        at_s = self.clock.now_s()
        nobody = Trace.of(np.zeros(0), np.zeros(0), np.zeros(0))
        snapshot = Snapshot(at_s=at_s, jobs=nobody, remaining_s=np.zeros(0), executed_s=np.zeros(0), running=np.zeros(0, bool))
        return ClusterState(at_s=at_s, cluster=Cluster.parse("2x8"), snapshot=snapshot, events=(), settings=self.settings())

    def settings(self) -> Config:
        self._answer()
        return self.running

    def plan(self, after: Config) -> ChangePlan:
        return ChangePlan(diff=f"-{self.running}\n+{after}\n", data={"old": self.path.read_text(), "new": json.dumps(after.to_json())})

    def apply(self, plan: ChangePlan) -> None:
        self.path.write_text(plan.data["new"])
        self._reload()

    def restore(self, plan: ChangePlan) -> None:
        self.path.write_text(plan.data["old"])
        self._reload()

    def stored(self, plan: ChangePlan) -> str:
        here = self.path.read_text()
        return "after" if here == plan.data["new"] else "before" if here == plan.data["old"] else "other"

    def _reload(self) -> None:
        self._answer()
        self.reloads += 1
        if self.refuses:
            raise LiveError(Fault(where="daemon", rule="refused"))
        if not self.deaf:
            self.running = Config(json.loads(self.path.read_text()))
