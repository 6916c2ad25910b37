"""A cluster that is not there: training or serving as our models predict it, with noise and failures, so that everything can be tried."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from autoscout.catalog.gpus import Cluster
from autoscout.catalog.training_knobs import SHARE
from autoscout.common.derived import DERIVED
from autoscout.common.fields import read_blocks, read_objective
from autoscout.core.clock import VirtualClock
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.launch import Completed, Launch
from autoscout.core.protocols import Backend
from autoscout.core.task import Direction, Task
from autoscout.core.trial import VIRTUAL, Fidelity, Measurement, Proposal, Status
from autoscout.evaluate.virtual import VirtualEvaluator
from autoscout.simulators.serving import ServingModel
from autoscout.simulators.serving.read import read_serving_task
from autoscout.simulators.training import TrainingModel
from autoscout.simulators.training.read import read_task
from autoscout.space import Choice, Flag, Grid, Knob, Space

TRAINING = {"model": "llama-3.2-3b", "sequence": 4096, "global_batch": 128}
SERVING = {"model": "llama-3.1-8b", "input_tokens": 1024, "output_tokens": 256, "concurrency": 64}
_SERVING_WORDS = ("input_tokens", "output_tokens", "isl", "osl", "concurrency", "request_rate")
_WORDS = {
    "training": "model kind sequence seq_len seq sequence_length seq_length max_seq_len global_batch global_batch_size gbs "
    "train_batch_size precision stack",
    "serving": "model kind input_tokens isl input_len random_input_len prompt_tokens output_tokens osl output_len random_output_len "
    "request_rate qps concurrency max_concurrency requests num_prompts engine",
}
"""What a workload may say besides the knobs that the simulator reads."""
SHARES = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_STEP_METRICS = ("step", "tokens", "tflops", "mfu", "samples", "throughput")


class VirtualBackend(Backend):
    """Answers of the training or serving model as if a cluster had measured them. Nothing is run; every answer says so.

    The workload decides: prompt lengths or a concurrency mean serving, everything else training. Hardware is named as for
    `autoscout estimate` (`gpus: 8xA100-80+4xA40`).
    """

    @classmethod
    def example(cls) -> Mapping[str, object]:
        return {}

    def task(self, given: Mapping[str, object]) -> Task:
        blocks = read_blocks(given)
        serving = any(word in blocks.workload for word in _SERVING_WORDS)
        usual: dict[str, Any] = dict(SERVING if serving else TRAINING)
        if "request_rate" in blocks.workload:
            usual.pop("concurrency", None)
        usual_metric = "output_throughput" if serving else "step_s"
        objective, faults = read_objective(blocks.objective, metrics=None, default=usual_metric, direction=_better)
        task = Task(
            system="virtual",
            workload={**usual, **blocks.workload, "kind": "serving" if serving else "training"},
            hardware={"gpus": "8xA100-80", **blocks.hardware},
            software=blocks.software,
            objective=objective,
        )
        _check(task, [*blocks.faults, *faults])
        return task

    def space(self, task: Task) -> Space:
        cluster = _cluster(task)
        gpus = cluster.gpus
        if task.workload["kind"] == "serving":
            return Space(
                [
                    Choice("tensor_parallel_size", _powers(gpus), help="GPUs that share every layer"),
                    Choice("max_num_seqs", [16, 32, 64, 128, 256, 512, 1024], default=256, help="requests that run at once"),
                    Choice("max_num_batched_tokens", [512, 1024, 2048, 4096, 8192, 16384], default=8192, help="tokens of one step"),
                    Grid("gpu_memory_utilization", 0.7, 0.95, step=0.05, default=0.9, help="share of GPU memory to use"),
                ],
                facts={"gpus": gpus},
            )
        knobs: list[Knob] = [
            Choice("tp", _powers(min(gpus, 8)), help="tensor parallel degree"),
            Choice("pp", [degree for degree in range(1, gpus + 1) if gpus % degree == 0], help="pipeline parallel degree"),
            Choice("cp", [1, 2, 4] if int(task.workload["sequence"]) >= 16384 else [1], help="context parallel degree"),
            Choice("dp", [degree for degree in range(1, gpus + 1) if gpus % degree == 0], default=gpus, help="data parallel degree"),
            Flag("sp", when="tp > 1", help="sequence parallelism"),
            Choice("ar", ["none", "selective", "full"], default="full", help="activation recomputation"),
            Choice("mbs", [1, 2, 4, 8], help="micro batch size"),
            Grid("tp_comm", 12, 20, default=16, when="tp > 1", help="SMs for tensor parallel communication"),
            Choice("ddp_bucket", [1, 2, 4, 8, 16, 32, 64], default=32, unit="MB", help="size of a gradient bucket"),
        ]
        facts = {"gpus": gpus, "global_batch": int(task.workload["global_batch"])}
        if cluster.is_mixed:
            return Space([*knobs, *_kinds(cluster)], [f"tp * pp * cp * dp == {' + '.join(cluster.knobs)}", *_batches(cluster)], facts)
        return Space(knobs, ["tp * pp * cp * dp == gpus", "global_batch % (dp * mbs) == 0"], facts)

    def fidelity(self, task: Task) -> Fidelity:  # noqa: ARG002 - nothing runs for real
        return Fidelity.SIMULATED

    def render(self, config: Config, task: Task, seed: int) -> Launch:
        return Launch(call=_Measure(config=config, task=json.dumps(task.to_json()), seed=seed), name=f"virtual-{config.key[:8]}")

    def parse(self, completed: Completed, task: Task) -> Measurement:  # noqa: ARG002
        if completed.cancelled or completed.timed_out or completed.out_of_memory:
            ended = Status.ABORTED if completed.cancelled else Status.TIMEOUT if completed.timed_out else Status.OOM_RUN
            return Measurement(status=ended, reason="the executor ended the virtual launch")
        if not isinstance(completed.value, Measurement):
            reason = completed.error.strip()[:500] or "the virtual cluster gave no answer"
            return Measurement(status=Status.CRASHED, reason=reason)
        answer = completed.value
        return replace(answer, conditions={**answer.conditions, VIRTUAL: 1.0, "virtual_cost_s": answer.cost_s})

    def export(self, config: Config, task: Task) -> Mapping[str, str]:
        note = f"Found on a virtual cluster ({task.hardware['gpus']}): simulated, never measured. Settings:"
        script = f"#!/bin/sh\n# {note}\ncat <<'END'\n{json.dumps(config.to_json(), indent=1)}\nEND\n"
        return {"run.sh": script, "config.json": json.dumps(config.to_json(), indent=1) + "\n"}


@dataclass(frozen=True, kw_only=True)
class _Measure:
    """One virtual measurement; plain data, so that it travels to other processes."""

    config: Config
    task: str
    seed: int

    def __call__(self) -> Measurement:
        task = Task.from_json(json.loads(self.task))
        cluster = VirtualEvaluator(_simulator(task), task, clock=VirtualClock())
        (answer,) = cluster.evaluate([Proposal(config=self.config, repeat=self.seed)])
        return answer


def _check(task: Task, faults: list[Fault]) -> None:
    """Refuse what the simulator would not understand: fields, metric, model, GPUs and load; with earlier faults, all at once."""
    kind, simulator = str(task.workload["kind"]), _simulator(task)
    names = {*_WORDS[kind].split(), *simulator.knobs}
    faults += [
        Fault(where="virtual", field=f"workload.{name}", rule=f"unknown field of a {kind} workload", fix="See docs/guides/estimate.md")
        for name in task.workload
        if name not in names
    ]
    try:
        for goal in task.objective.goals:
            answer = simulator.predict([Config()], replace(task, objective=task.objective.only(goal)))
            silent = bool(np.isnan(answer.value).all()) if kind == "serving" else not any(word in goal.metric for word in _STEP_METRICS)
            if silent and goal.metric not in DERIVED:
                rule = f"the {kind} model predicts no such metric"
                faults.append(Fault(where="virtual", field="objective.metric", value=goal.metric, rule=rule))
        if kind == "training" and task.objective.several:
            rule = "the training model predicts one metric at a time"
            faults.append(Fault(where="virtual", field="objective.metrics", rule=rule, fix="Name one metric"))
    except ConfigError as error:
        faults += error.faults
    if faults:
        raise ConfigError(faults)


def _simulator(task: Task) -> ServingModel | TrainingModel:
    return ServingModel() if task.workload["kind"] == "serving" else TrainingModel()


def _cluster(task: Task) -> Cluster:
    read = read_serving_task if task.workload["kind"] == "serving" else read_task
    return read(task).cluster


def _kinds(cluster: Cluster) -> list[Knob]:
    """Knobs of a mixed cluster: which kinds are used, how much work a GPU of each gets, and how ranks are placed."""
    first, *others = cluster.knobs
    counts = [count for _, count in cluster.groups]
    return [
        Choice(first, [counts[0]], help="GPUs of the first kind"),
        *(Choice(knob, [0, count], default=count, help="GPUs of this kind") for knob, count in zip(others, counts[1:], strict=True)),
        *(
            Grid(f"{knob}{SHARE}", values=SHARES, default=1.0, when=f"{knob} > 0", help=f"work of a GPU of this kind, of one of {first}'s")
            for knob in others
        ),
        Flag("stages_inner", when=" or ".join(f"{knob} > 0" for knob in others), help="stages next to each other, replicas far apart"),
    ]


def _batches(cluster: Cluster) -> list[str]:
    """Replicas get equal numbers of micro-batches; with unequal shares, whole ones and one each."""
    even = " and ".join(f"({knob} == 0 or {knob}{SHARE} == 1)" for knob in cluster.knobs[1:])
    return ["global_batch % mbs == 0", "dp * mbs <= global_batch", f"global_batch % (dp * mbs) == 0 or not ({even})"]


def _better(metric: str) -> Direction:
    return Direction.MAXIMIZE if "throughput" in metric or "goodput" in metric or "tokens" in metric else Direction.MINIMIZE


def _powers(highest: int) -> list[int]:
    return [2**power for power in range(highest.bit_length()) if 2**power <= highest and highest % 2**power == 0]


__all__ = ["VirtualBackend"]
