"""Trials on the nodes of a Slurm cluster."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import ClassVar

from autoscout.core.errors import Fault, LaunchError
from autoscout.core.launch import Launch, Resources
from autoscout.core.log import NOTICES, logger
from autoscout.core.protocols import Job
from autoscout.execute._shared.allocation import Share, SlotPool
from autoscout.execute._shared.call import pack_call, refuse_while_reimporting
from autoscout.execute._shared.executor import QueuedExecutor, check_launch
from autoscout.execute._shared.patience import Patience
from autoscout.execute._shared.queue import LaunchRun
from autoscout.execute._shared.remote.nodes import ClusterNode, NodePool, choose_kind, node_faults
from autoscout.execute._shared.remote.order import LaunchOrder
from autoscout.execute._shared.remote.trial import Attempts, RemoteTrial, TrialMachines
from autoscout.execute.slurm.clients import ask, partition_nodes
from autoscout.execute.slurm.granted import StudyJobs
from autoscout.execute.slurm.jobs import HeldAllocation, OnAllocation, OwnJob
from autoscout.execute.slurm.options import SlurmOptions

NODES_S = 30.0  # how long a list of nodes is good for
HELLO_S = 300.0  # how long a step may take to start on nodes that are ours already

log = logger(__name__)
notices = logger(NOTICES)


class SlurmExecutor(QueuedExecutor):
    """Runs trials on a Slurm cluster: each as a job of its own, or all on one allocation that the study holds.

    On the node a trial runs under the supervisor of the local executor. AutoScout must be reachable there under the same path, or be
    installed. When a node fails, or a job is preempted or cancelled, the trial runs again. When AutoScout ends, however that happens,
    its jobs end too.
    """

    programs: ClassVar[tuple[str, ...]] = ("salloc", "srun", "sbatch", "squeue", "scancel", "sinfo", "scontrol")

    def __init__(self, options: SlurmOptions | None = None) -> None:
        self.options = options or SlurmOptions()
        self._jobs = StudyJobs()
        self._patience = Patience()
        can_hold = self.options.mode == "allocation"
        pool = NodePool(self.options.slots, self._held_nodes(), "the allocation") if can_hold else SlotPool(self.options.slots)
        super().__init__(self.options, pool, "slurm")
        self._held = HeldAllocation(self.options, self._jobs, self._patience) if can_hold else None
        self._checking = threading.Lock()
        self._checked: set[Resources] = set()
        self._nodes: tuple[float, list[ClusterNode]] | None = None

    def submit(self, launch: Launch) -> Job:
        refuse_while_reimporting()
        check_launch(launch)
        packed = None if launch.call is None else pack_call(launch.call, launch.name)
        self._check(launch)
        order = LaunchOrder(launch=replace(launch, call=None), settings=self._settings, packed=packed)
        attempts = Attempts(most=self.options.attempts)
        return self._queue.submit(launch, lambda share: self._prepare(order, share, attempts))

    def close(self) -> None:
        self._queue.close()
        if self._held is not None:
            self._held.close()
        super().close()

    def _prepare(self, order: LaunchOrder, share: Share, attempts: Attempts) -> LaunchRun:
        own = OwnJob(self.options, order.launch.resources, self._jobs, self._patience)
        machines: TrialMachines = own if self._held is None else OnAllocation(self._held)
        return RemoteTrial(order, share, machines, attempts, HELLO_S)

    def _held_nodes(self) -> list[ClusterNode]:
        held = self.options.held()
        return [
            ClusterNode(name=str(number), cores=held.cpus, gpus=held.gpus, memory_gb=held.memory_gb, slots=self.options.slots)
            for number in range(held.nodes)
        ]

    def _check(self, launch: Launch) -> None:
        """Refuse what Slurm would refuse or keep waiting for ever; once for each size of launch."""
        resources = self.options.held() if self._held is not None else launch.resources
        partition = f"the partition {self.options.partition}" if self.options.partition else "the Slurm cluster"
        with self._checking:
            if not self._checked:
                self._jobs.sweep()
            if resources.gpus and not self.options.gpu_type and self.options.kinds == "one":
                self._choose_kind(resources)
            faults = node_faults(self._partition(), launch.resources, f"launch {launch.name}".strip(), partition)
            if self._held is not None:
                faults = faults or node_faults(self._partition(), resources, "executor slurm", partition)
            if faults:
                raise LaunchError(faults)
            if resources in self._checked:
                return
            flags = self.options.asks(resources)
            try:
                ask("sbatch", "--test-only", *flags, "--wrap=true")
            except LaunchError as error:
                fix = "Change execute.options of the campaign; `sinfo`, `sacctmgr show assoc` and `sacctmgr show qos` list what there is"
                raise LaunchError(
                    Fault(where="executor slurm", field="options", value=" ".join(flags), rule=error.faults[0].rule, fix=fix)
                ) from error
            self._checked.add(resources)

    def _choose_kind(self, resources: Resources) -> None:
        """Use GPUs of one type only, where there are several and the user named none."""
        chosen = choose_kind(self._partition(), resources)
        if chosen is None:
            return
        best, others = chosen
        notices.warning("trials run on GPUs of one type, %s; not used: %s", best, ", ".join(others))
        self.options = replace(self.options, gpu_type=best)
        self._nodes = None
        if self._held is not None:
            self._held.options = self.options

    def _partition(self) -> list[ClusterNode]:
        now_s = time.monotonic()
        if self._nodes is None or now_s > self._nodes[0] + NODES_S:
            self._nodes = now_s, partition_nodes(self.options.partition, self.options.gpu_type, self.options.constraint)
        return self._nodes[1]


__all__ = ["SlurmExecutor"]
