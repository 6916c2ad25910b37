"""Backend `sched`: tunes the scheduler of a GPU cluster by simulating a trace of its jobs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field

from autosched.sim.cluster import Cluster
from autosched.sim.metrics import HIGHER_IS_BETTER, METRICS
from autosched.sim.simulation import Simulation
from autosched.source import SYNTHETIC, load_trace
from autoscout.backends.function import Call, executor_failure
from autoscout.common.fields import Block, Listed, read_blocks, read_fields, read_objective, refuse_if, suggestion
from autoscout.core import plugins
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.launch import Completed, Launch
from autoscout.core.protocols import Backend
from autoscout.core.task import Direction, Task
from autoscout.core.trial import Fidelity, Measurement, Status
from autoscout.space import Space

METRIC = "mean_jct_s"  # what is improved when the campaign does not say

Text = Annotated[str, BeforeValidator(lambda value: str(value) if isinstance(value, (int, float)) else value)]


class SchedWorkload(Block):
    """The block `workload`: which jobs, and who schedules them."""

    trace: str = Field(description="a trace file, or synthetic:PROFILE[:JOBS[:DAYS[:SEED]]]")
    scheduler: str = "tiresias"
    format: str = ""
    begin: Text = Field("", alias="from")
    end: Text = Field("", alias="to")
    status: Listed = Field(default_factory=list)
    drop_bad: bool = False
    jobs: int | None = None  # filled in, so that a changed trace is another task
    gpu_hours: float | None = None


class SchedBackend(Backend):
    """A cluster scheduler on a trace. Nothing runs for real: every answer is simulated and says so.

    The workload names the trace and the scheduler (`trace`, `scheduler`; `from`, `to`, `status`, `format` and `drop_bad` as for
    `autoscout sched simulate`), the hardware names the cluster (`cluster: 16x8`).
    """

    executor: ClassVar[str] = "inline"

    @classmethod
    def example(cls) -> Mapping[str, object]:
        return {"workload": {"trace": "synthetic:venus:200:1:1", "scheduler": "fifo"}, "hardware": {"cluster": "16x8"}}

    def task(self, given: Mapping[str, object]) -> Task:
        blocks = read_blocks(given)
        workload, faults = read_fields(SchedWorkload, blocks.workload, "workload")
        schedulers = plugins.available("scheduler")
        if workload is not None and workload.scheduler not in schedulers:
            rule, fix = "there is no such scheduler", suggestion(workload.scheduler, schedulers) or "`autoscout sched list` shows all"
            faults.append(Fault(where="workload", field="scheduler", value=repr(workload.scheduler), rule=rule, fix=fix))
        faults += _cluster_faults(blocks.hardware)
        objective, wrong = read_objective(
            blocks.objective,
            metrics=METRICS,
            default=METRIC,
            direction=lambda name: Direction.MAXIMIZE if name in HIGHER_IS_BETTER else Direction.MINIMIZE,
        )
        refuse_if([*blocks.faults, *faults, *wrong])
        assert workload is not None  # a block without a trace is a fault
        described = workload.model_dump(by_alias=True, exclude_defaults=True) | {"scheduler": workload.scheduler}
        if not workload.trace.startswith(SYNTHETIC):
            described["trace"] = str(Path(workload.trace).absolute())
        cluster = str(blocks.hardware["cluster"])
        if Path(cluster).is_file():
            cluster = str(Path(cluster).absolute())
        described = {name: value for name, value in described.items() if name not in ("jobs", "gpu_hours")}
        question = _question(json.dumps(described, sort_keys=True), cluster)
        described |= {"jobs": len(question.trace), "gpu_hours": round(question.trace.gpu_seconds / 3600, 3)}
        hardware = {"cluster": cluster, "gpus": question.cluster.gpus, "nodes": sum(group.nodes for group in question.cluster.groups)}
        return Task(system="sched", workload=described, hardware=hardware, software=blocks.software, objective=objective)

    def space(self, task: Task) -> Space:
        return question_of(task).offered()

    def fidelity(self, task: Task) -> Fidelity:  # noqa: ARG002 - nothing runs for real
        return Fidelity.SIMULATED

    def deterministic(self, task: Task) -> bool:  # noqa: ARG002 - the simulator always is
        return True

    def render(self, config: Config, task: Task, seed: int) -> Launch:  # noqa: ARG002 - nothing is drawn at random
        return Launch(call=Simulate(task=json.dumps(task.to_json()), config=config), name=f"sched-{config.key[:8]}")

    def parse(self, completed: Completed, task: Task) -> Measurement:  # noqa: ARG002
        if isinstance(completed.value, Measurement):
            return completed.value
        reason = completed.error.strip().splitlines()[-1:] or ["the simulation did not return"]
        return executor_failure(completed, reason[0])

    def export(self, config: Config, task: Task) -> Mapping[str, str]:
        workload = task.workload
        flags = {"--trace": workload["trace"], "--cluster": task.hardware["cluster"], "--scheduler": workload["scheduler"]}
        flags |= {f"--{name}": workload[name] for name in ("format", "from", "to") if workload.get(name)}
        words = [word for flag, value in flags.items() for word in (flag, str(value))]
        words += [word for status in workload.get("status", ()) for word in ("--status", str(status))]
        words += ["--drop-bad"] if workload.get("drop_bad") else []
        words += [word for name, value in config.items() for word in ("--set", f"{name}={json.dumps(value).strip(chr(34))}")]
        settings = {"scheduler": workload["scheduler"], "settings": config.to_json()}
        return {
            "scheduler.json": json.dumps(settings, indent=2) + "\n",
            "run.sh": "#!/bin/sh\n# Simulates the trace with these settings again; scheduler.json holds them for the scheduler itself.\n"
            f"exec autoscout sched simulate {shlex.join(words)}\n",
        }


@dataclass(frozen=True, kw_only=True)
class Simulate:
    """One simulation; plain data, so that it travels to other processes."""

    task: str
    config: Config

    def __call__(self) -> Measurement:
        task = Task.from_json(json.loads(self.task))

        def metrics(config: Config) -> dict[str, float]:  # reads the trace inside the call, so that a trace that does not fit is an answer
            return question_of(task, bounded=True)(config)

        answer = Call(function=metrics, config=self.config, metric=task.objective.metric)()
        # A scheduler that refuses its settings has not crashed.
        refused = answer.status is Status.CRASHED and answer.reason.startswith(ConfigError.__name__)
        return replace(answer, status=Status.INVALID) if refused else answer


def question_of(task: Task, *, bounded: bool = False) -> Simulation:
    """The simulation that a task describes, with or without a bound on its cost; the trace is read once per process."""
    described = {name: value for name, value in task.workload.items() if name not in ("jobs", "gpu_hours")}
    return (_bounded if bounded else _question)(json.dumps(described, sort_keys=True), str(task.hardware["cluster"]))


@lru_cache(maxsize=4)
def _question(described: str, cluster: str) -> Simulation:
    workload: dict[str, Any] = json.loads(described)
    trace = load_trace(
        workload["trace"],
        form=workload.get("format", ""),
        begin=workload.get("from", ""),
        end=workload.get("to", ""),
        status=workload.get("status", ()),
        drop_bad=workload.get("drop_bad", False),
    )
    return Simulation(trace=trace, cluster=Cluster.parse(cluster), scheduler=workload["scheduler"])


@lru_cache(maxsize=4)
def _bounded(described: str, cluster: str) -> Simulation:
    return _question(described, cluster).bounded()


def _cluster_faults(hardware: Mapping[str, Any]) -> list[Fault]:
    names = ("cluster", "gpus", "nodes")
    unknown = [name for name in hardware if name not in names]
    faults = [Fault(where="hardware", field=name, rule="unknown key", fix=suggestion(name, names)) for name in unknown]
    if not hardware.get("cluster"):
        fix = "Write hardware.cluster: NODESxGPUS such as 70x8, parts joined by +, or a node file"
        return [*faults, Fault(where="hardware", field="cluster", rule="is required", fix=fix)]
    try:
        Cluster.parse(str(hardware["cluster"]))
    except ConfigError as error:
        faults += [replace(fault, where="hardware", field="cluster") for fault in error.faults]
    return faults


__all__ = ["SchedBackend"]
