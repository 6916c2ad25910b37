"""Analytic model of transformer training: dense and MoE, all parallelisms, memory and feasibility."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from autoscout.catalog.training_knobs import HARDWARE_KNOBS, KNOBS
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.protocols import Prediction, Simulator
from autoscout.core.task import Direction, Objective, Task
from autoscout.core.trial import Fidelity, Trial
from autoscout.simulators.training.calibration import TrainingCalibration, training_calibration, usual
from autoscout.simulators.training.job import ParallelLayout
from autoscout.simulators.training.memory import StepMemory, feasible, spare_room, step_memory
from autoscout.simulators.training.mixed import mixed_step, shares
from autoscout.simulators.training.read import TrainingTask, read_layout, read_task, training_job
from autoscout.simulators.training.step import StepTime, step_time
from autoscout.simulators.training.tables import model_flops
from autoscout.space import Choice, Flag, Space

Vector = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Settings of the training model.

    Attributes:
        calibration: File written by `autoscout calibrate`; empty takes the shipped one for the task's software.
        stack: Name of a shipped calibration, instead of what the task's software says.
        adapt: Learn one scale factor and one memory shift per job from measured trials.
        factor: Of all times; what own studies on such GPUs say.
    """

    calibration: str = ""
    stack: str = ""
    adapt: bool = True
    factor: float = 1.0


@dataclass(frozen=True, kw_only=True)
class TrainingAnswer:
    """Everything the model knows about n configs: the time and memory of the slowest and fullest kind of GPU."""

    layout: ParallelLayout
    time: StepTime
    memory: StepMemory
    capacity_bytes: Any
    feasible: Vector
    known: Vector
    valid: NDArray[np.bool_]


_NO_TIMES = ("memory", "bytes", "loss", "energy", "power", "perplexity")
"""What a metric may be about, other than time; every other unknown one that is to be minimised counts as seconds per step."""


class TrainingModel(Simulator):
    """Predicts step time and memory of transformer training from model shape, layout, GPUs and a calibration."""

    needs_no_trials: ClassVar[bool] = True
    knobs: ClassVar[frozenset[str]] = frozenset(chain(HARDWARE_KNOBS, *KNOBS.values()))

    def __init__(self, options: TrainingOptions | None = None) -> None:
        self.options = options or TrainingOptions()
        self._seen: tuple[Task, TrainingTask, TrainingCalibration] | None = None
        self._scale = self.options.factor
        self._shift = 0.0
        self._spread: float | None = None

    @classmethod
    def example(cls) -> tuple[Space, Task]:
        """Eight GPUs for a small model."""
        workload = {"model": "llama-3.2-3b", "sequence": 4096, "global_batch": 64}
        task = Task(system="megatron", objective=Objective(metric="step_s"), workload=workload, hardware={"gpus": "8xA100-80"})
        degrees = [Choice(name, [1, 2, 4, 8], default=8 if name == "dp" else 1) for name in ("tp", "pp", "dp")]
        return Space([*degrees, Choice("mbs", [1, 2, 4]), Flag("sp", when="tp > 1")], ["tp * pp * dp == gpus"], {"gpus": 8}), task

    def predict(self, configs: Sequence[Config], task: Task) -> Prediction:
        if not configs:
            empty = np.zeros(0)
            return Prediction(value=empty, spread=empty, feasible=empty, known=empty)
        reading, calibration = self._read(task)
        if task.objective.direction is Direction.MAXIMIZE and not _is_throughput(task.objective.metric):
            rule = "to be maximised, and none of the throughputs that this model knows"
            raise ConfigError(Fault(where="task", field="objective.metric", value=task.objective.metric, rule=rule))
        if any(word in task.objective.metric for word in _NO_TIMES):
            rule = "this model predicts times and throughputs"
            raise ConfigError(Fault(where="task", field="objective.metric", value=task.objective.metric, rule=rule))
        answer = self.answer(configs, task)
        count = len(configs)
        step_s = np.broadcast_to(answer.time.total_s, (count,)) * self._scale
        spread = (self._spread or calibration.spread) * (2.0 - answer.known)
        value = metric_of(task.objective.metric, step_s, reading)
        return Prediction(value=value, spread=spread, feasible=answer.feasible, known=answer.known)

    def fit(self, trials: Sequence[Trial], task: Task) -> None:
        """Learn one scale from measured times and one shift of the memory margin from what ran and what did not."""
        self._scale, self._shift, self._spread = self.options.factor, 0.0, None
        measured = [trial for trial in trials if trial.measurement.fidelity is Fidelity.MEASURED]
        if not self.options.adapt or not measured:
            return
        prediction = self.predict([trial.config for trial in measured], task)
        _, calibration = self._read(task)
        direction = -1.0 if _is_throughput(task.objective.metric) else 1.0
        ratios = [
            direction * float(np.log(value / trial.measurement.metrics[task.objective.metric]))
            for value, trial in zip(prediction.value, measured, strict=True)
            if trial.ok and trial.measurement.metrics.get(task.objective.metric, 0.0) > 0
        ]
        if ratios:
            middle = float(np.median(ratios))
            prior = (calibration.spread / max(calibration.spread, 0.1)) ** 2 * 0.3
            self._scale *= float(np.exp(-middle * len(ratios) / (len(ratios) + prior)))
            within = np.asarray(ratios) - middle
            self._spread = float(np.sqrt((4.0 * 0.08**2 + within @ within) / (4.0 + len(ratios))))
        self._shift = self._learn_memory(measured, task, calibration)

    def answer(self, configs: Sequence[Config], task: Task) -> TrainingAnswer:
        """Times and memory by part, before the per-job scale."""
        reading, calibration = self._read(task)
        rows = [config.to_json() for config in configs]
        fixed = {**calibration.assumes, **usual(reading.stack, reading.precision), "precision": reading.precision, **reading.fixed}
        layout = read_layout(rows, fixed, float(reading.cluster.gpus))
        uneven = reading.cluster.is_mixed and (shares(rows, reading) != 1.0).any(axis=0)
        valid = np.broadcast_to(_valid(layout, reading, uneven=uneven), (len(rows),))
        job = training_job(reading, layout)
        memory_constants = replace(calibration.memory, margin=calibration.memory.margin + self._shift)
        if reading.cluster.is_mixed:
            step = mixed_step(reading, rows, layout, calibration, memory_constants)
            time, memory, fits, capacity, valid = step.time, step.memory, step.fits, step.capacity_bytes, valid & step.placed
        else:
            time = step_time(job, calibration.constants, calibration.shapes.factor(job))
            memory = step_memory(job, calibration.memory)
            fits, capacity = feasible(memory, job, memory_constants), job.memory_bytes
        count = len(configs)
        return TrainingAnswer(
            layout=layout,
            time=time,
            memory=memory,
            capacity_bytes=capacity,
            feasible=np.where(valid, np.broadcast_to(fits, (count,)), 0.0),
            known=calibration.known(job, count),
            valid=valid,
        )

    def breakdown(self, config: Config, task: Task) -> dict[str, float]:
        """Seconds of one step by part, as far as each takes any."""
        parts = self.answer([config], task).time.parts()
        return {name: float(np.ravel(seconds)[0]) * self._scale for name, seconds in parts.items() if float(np.ravel(seconds)[0]) > 0}

    def calibration(self, task: Task) -> TrainingCalibration:
        """The constants in use for a task."""
        return self._read(task)[1]

    def _read(self, task: Task) -> tuple[TrainingTask, TrainingCalibration]:
        if self._seen is None or self._seen[0] is not task:
            reading = read_task(task)
            calibration = training_calibration(self.options.stack or reading.stack, self.options.calibration or None)
            gpu = reading.cluster.groups[0][0]
            if not (self.options.stack or self.options.calibration or calibration.has_range_for(gpu.flops("bf16"))):
                calibration = training_calibration("default")  # better pooled over software than never seen on such a GPU
            self._seen = (task, reading, calibration)
        return self._seen[1], self._seen[2]

    def _learn_memory(self, measured: Sequence[Trial], task: Task, calibration: TrainingCalibration) -> float:
        """The most likely shift of the margin under a prior of 0.3 around 0, by a grid."""
        trials = [trial for trial in measured if trial.ok or trial.measurement.status.out_of_memory]
        if not trials:
            return 0.0
        answer = self.answer([trial.config for trial in trials], task)
        ran = np.array([trial.ok for trial in trials])
        room = spare_room(answer.memory, answer.capacity_bytes, calibration.memory) - calibration.memory.margin
        shifts = np.linspace(-0.9, 0.9, 61)
        odds = 1.702 * (np.broadcast_to(room, ran.shape)[:, None] - shifts[None, :]) / calibration.memory.spread
        likelihood = -np.logaddexp(0.0, np.where(ran[:, None], -odds, odds)).sum(axis=0) - 0.5 * (shifts / 0.3) ** 2
        return float(shifts[int(np.argmax(likelihood))])


def _valid(layout: ParallelLayout, reading: TrainingTask, *, uneven: NDArray[np.bool_] | bool) -> NDArray[np.bool_]:
    """What every engine refuses: more ranks than GPUs, heads, layers, experts or batch that do not divide.

    Replicas with unequal shares need whole micro-batches only, and one each.
    """
    shape = reading.shape
    world = layout.tp * layout.pp * layout.dp * layout.cp
    good = (world <= reading.cluster.gpus) & (shape.heads % layout.tp == 0) & (layout.pp <= shape.layers)
    even = reading.global_batch % (layout.micro_batch * layout.dp) == 0
    good &= even | (uneven & (reading.global_batch % layout.micro_batch == 0) & (reading.global_batch >= layout.micro_batch * layout.dp))
    parts = layout.pp * layout.virtual_stages
    whole = (shape.layers % parts == 0) | ((shape.layers + 2) % parts == 0)  # embedding and loss may count as layers
    good &= (layout.virtual_stages == 1) | whole | ((layout.listed_stages > 0) & (parts <= shape.layers + 2))
    if shape.experts:
        good &= (shape.experts % layout.ep == 0) & (layout.ep <= world)
    return np.asarray(good, dtype=bool)


def _is_throughput(metric: str) -> bool:
    return any(word in metric for word in ("tokens", "tflops", "mfu", "samples", "throughput"))


def metric_of(metric: str, step_s: Vector, reading: TrainingTask) -> Vector:
    """Step time in the unit that the objective asks for; unknown names count as seconds per step."""
    gpus = float(reading.cluster.gpus)
    tokens = reading.global_batch * reading.sequence
    per_gpu = 1.0 / gpus if "gpu" in metric else 1.0
    if "mfu" in metric or "tflops" in metric:
        flops = model_flops(reading.shape, reading.sequence, tokens) / step_s / gpus
        return np.asarray(flops / (reading.cluster.groups[0][0].flops("bf16") if "mfu" in metric else 1e12))
    if "samples" in metric:
        return np.asarray(reading.global_batch / step_s * per_gpu)
    if _is_throughput(metric):
        return np.asarray(tokens / step_s * per_gpu)
    if metric.endswith("_ms"):
        return np.asarray(step_s * 1e3)
    if not metric:
        raise ConfigError(Fault(where="task", field="objective.metric", rule="must name what to predict"))
    return np.asarray(step_s)


__all__ = ["TrainingModel"]
