"""What every training workload says besides its model, and the task that is made of a description."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar, cast

from pydantic import Field, FiniteFloat

from autoscout.catalog.hardware import hardware_faults
from autoscout.catalog.models import model as catalogued
from autoscout.common.fields import Block, read_blocks, read_objective, refuse_if
from autoscout.common.text import suggestion
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.task import Direction, Guard, Objective, Task
from autoscout.training.hardware import detect, node_faults
from autoscout.training.protocol import METRICS, TFLOPS, THROUGHPUTS
from autoscout.training.steps import StepPlan

WHERE = "workload"
LOSS = "loss_after"

SMALL: dict[str, dict[str, int]] = {
    "micro": {"layers": 4, "width": 64, "heads": 4, "vocabulary": 256, "sequence": 32},
    "tiny": {"layers": 4, "width": 256, "heads": 4, "vocabulary": 2048, "sequence": 128},
}
CATALOGUED = {"gpt-124m": 1024, "gpt-216m": 1024, "gpt-350m": 1024, "gpt-1b": 1024}
"""Built-in models, with random weights: small ones for CPUs (`micro` is for tests), and shapes of the catalogue with a sequence length."""


class TrainingWorkload(Block):
    """How a training run is measured, whatever trains. What is 0 or empty when left out is chosen to suit model and device.

    Attributes:
        warm_up: Steps that never count.
        least_steps: Steps to measure after them.
        most_steps: Steps after which measuring ends in any case.
        settled: Relative half-width of the 95 % interval of the mean step time at which measuring ends.
        enough_s: Seconds of measuring after which no further step is waited for.
        loss_steps: Steps that every run makes, and after which `loss_after` is read.
        long_steps: Steps of the runs in the last round of the final, where the losses of default and answer are compared for longer, as far
            as there is time; 0 leaves them as long as the others.
        max_first_gap: How far the first loss may be from the default's, up or down: weights and data are the same.
        max_loss_gap: How far, relative to the default's, the loss may be above it on the same data.
        hang_s: Seconds without a step after which a run hangs; and at least twenty times its usual step.
        limit_s: Wall-clock limit of one measurement.
        seed: Of weights and data, the same for all configurations.
    """

    warm_up: int = Field(2, ge=1)
    least_steps: int = Field(6, ge=3)
    most_steps: int = Field(40, ge=3)
    settled: FiniteFloat = Field(0.03, gt=0)
    enough_s: FiniteFloat = Field(20.0, gt=0)
    loss_steps: int = Field(8, ge=1)
    long_steps: int = Field(60, ge=0, le=10_000)
    max_first_gap: FiniteFloat = Field(0.05, gt=0)
    max_loss_gap: FiniteFloat = Field(0.02, gt=0)
    hang_s: FiniteFloat = Field(60.0, gt=0)
    limit_s: FiniteFloat = Field(600.0, gt=0)
    seed: int = Field(0, ge=0)

    @property
    def plan(self) -> StepPlan:
        return StepPlan(
            warm_up=self.warm_up,
            least=self.least_steps,
            most=max(self.most_steps, self.least_steps, self.loss_steps - self.warm_up),
            settled=self.settled,
            enough_s=self.enough_s,
        )


class BuiltInWorkload(TrainingWorkload):
    """A built-in model and the work of one step.

    Attributes:
        model: One of the shapes.
        layers: Of the model, where they differ from the shape's; likewise `sequence`.
        sequence: Tokens of one sequence.
        depths: Two numbers of layers to measure and extrapolate from, instead of all layers: cheaper, and labelled simulated.
        global_batch: Sequences of one optimizer step, over all processes; the same for every configuration.
    """

    model: str = ""
    depths: list[int] = Field([])
    layers: int = Field(0, ge=0)
    sequence: int = Field(0, ge=0)
    global_batch: int = Field(0, ge=0)

    @classmethod
    def named_shape(cls, name: str) -> dict[str, Any]:
        """The shape of a built-in model.

        Raises:
            ConfigError: there is none of this name.
        """
        if name in SMALL:
            return SMALL[name]
        if name not in CATALOGUED:
            names = (*SMALL, *CATALOGUED)
            rule = f"no built-in model has this name; there are: {', '.join(names)}"
            raise ConfigError(Fault(where=WHERE, field="model", value=repr(name), rule=rule, fix=suggestion(name, names)))
        shape = catalogued(name)
        sizes = {"layers": shape.layers, "width": shape.hidden, "heads": shape.heads, "vocabulary": shape.vocab}
        return {**sizes, "sequence": CATALOGUED[name]}

    @property
    def shape(self) -> dict[str, Any]:
        own = {name: value for name, value in (("layers", self.layers), ("sequence", self.sequence)) if value}
        return {**self.named_shape(self.model), **own}

    @property
    def least_layers(self) -> int:
        """Layers of the shallowest model that is built, which pipeline stages must be able to share."""
        return min([self.shape["layers"], *self.depths])


Built = TypeVar("Built", bound=BuiltInWorkload)


def fill_model(workload: Built, device: str, processes: int, *, replicas: bool = True) -> tuple[Built, list[Fault]]:
    """The workload with model, sequence and batch chosen, and all that is wrong with them.

    Args:
        workload: As it was described.
        device: Of the processes.
        processes: That share a batch.
        replicas: Whether every process may hold a replica of its own, so that a batch must be divisible among all of them.
    """
    name = workload.model or ("gpt-216m" if device == "cuda" else "tiny")
    try:
        named = workload.named_shape(name)
    except ConfigError as error:
        return workload, list(error.faults)
    whole = workload.layers or named["layers"]
    if workload.depths and not (len(workload.depths) == 2 and 0 < workload.depths[0] < workload.depths[1] <= whole):
        rule = f"two ascending numbers of layers, at most the {whole} of the model"
        return workload, [Fault(where=WHERE, field="depths", value=repr(workload.depths), rule=rule, fix="Example: -w depths='[2, 4]'")]
    batch = workload.global_batch or (32 if device == "cuda" else 4) * processes
    filled = workload.model_copy(update={"model": name, "global_batch": batch, "sequence": workload.sequence or named["sequence"]})
    if replicas and batch % processes:
        rule = f"every one of the {processes} processes must get the same share of a batch"
        return filled, [Fault(where=WHERE, field="global_batch", value=str(batch), rule=rule, fix=f"Take a multiple of {processes}")]
    return filled, []


def read_goal(data: Mapping[str, Any], gap: float, more: Sequence[str] = ()) -> tuple[Objective, list[Fault]]:
    """The objective: tokens per second, with the loss as a guard, so that no configuration wins by learning less.

    Args:
        data: As it was described.
        gap: How far, relative to the default's, the loss may be above it.
        more: Metrics that only this program reports.
    """
    objective, faults = read_objective(data, metrics=(*METRICS, *more), default=THROUGHPUTS[0], direction=natural_direction)
    bounded = {objective.metric, *(guard.metric for guard in objective.guards), *(limit.metric for limit in objective.limits)}
    if LOSS not in bounded:
        objective = replace(objective, guards=(*objective.guards, Guard(metric=LOSS, op="<=", times=round(1 + gap, 6))))
    return objective, faults


def natural_direction(metric: str) -> Direction:
    """More work per second and more free memory are better, and less of everything else."""
    return Direction.MAXIMIZE if metric in (*THROUGHPUTS, TFLOPS, "free_mem_gib") else Direction.MINIMIZE


Kind = TypeVar("Kind", bound=TrainingWorkload)
Reader = Callable[[Mapping[str, Any], Mapping[str, Any]], tuple[Kind, list[Fault]]]
"""Reads a workload block, given the hardware: the workload filled up, and all that is wrong with it."""


def read_training_task(
    system: str,
    description: Mapping[str, object],
    read: Reader[Kind],
    packages: Sequence[str],
    *,
    alone: bool = False,
    metrics: Sequence[str] = (),
) -> Task:
    """The task, filled up with facts of this machine.

    Args:
        system: The backend's name.
        description: The description.
        read: Of its workload.
        packages: Whose versions matter.
        alone: Take one process on a machine without GPUs, instead of two.
        metrics: That this system reports besides those of all training.

    Raises:
        ConfigError: all faults at once; those of the hardware first, since the workload is read by it.
    """
    blocks = read_blocks(description)
    hardware = detect(blocks.hardware)
    if alone and hardware["device"] == "cpu" and not {"processes", "nodes"} & set(blocks.hardware):
        hardware["processes"] = 1
    wrong = hardware_faults(hardware)
    refuse_if([*blocks.faults, *wrong] if wrong else [])
    workload, faults = read(blocks.workload, hardware)
    objective, more = read_goal(blocks.objective, workload.max_loss_gap, metrics)
    refuse_if([*blocks.faults, *node_faults(hardware), *faults, *more])
    return Task(
        system=system,
        workload=workload.model_dump(),
        hardware=hardware,
        software={**{name: installed(name) for name in packages}, **blocks.software},
        objective=objective,
        budget=blocks.budget,
    )


def workload_of(kind: type[Kind], task: Task) -> Kind:
    """The workload of a task that the backend made."""
    workload: Any = kind.model_construct(**{name: task.workload[name] for name in kind.model_fields if name in task.workload})
    return cast(Kind, workload)


def lengthened(task: Task) -> Task:
    """The task of one run of `long_steps`, whatever its step times say."""
    workload = workload_of(TrainingWorkload, task)
    steps = max(1, workload.long_steps - workload.warm_up)
    limit_s = workload.limit_s * max(1.0, workload.long_steps / workload.plan.steps)
    return replace(task, workload={**task.workload, "least_steps": steps, "most_steps": steps, "limit_s": limit_s})


def installed(package: str) -> str:
    """Version of a package; empty where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
