"""GPUs of several kinds in one job: the slowest replica decides how long the step takes, the tightest kind whether it fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscout.catalog.placement import Placement, place
from autoscout.catalog.training_knobs import SHARE
from autoscout.simulators._shared.task import number
from autoscout.simulators.training.arithmetic import smaller
from autoscout.simulators.training.calibration import TrainingCalibration
from autoscout.simulators.training.job import ParallelLayout, Stages, TrainingJob
from autoscout.simulators.training.memory import MemoryConstants, StepMemory, feasible, step_memory
from autoscout.simulators.training.read import TrainingTask, training_job
from autoscout.simulators.training.step import Passes, StepTime, passes, sends_s, step_ends, whole_step

Vector = NDArray[np.float64]
MIN_SHARE = 0.01
"""Below this a kind is better left out."""


@dataclass(frozen=True, kw_only=True)
class MixedAnswer:
    """Step time, memory of the tightest kind of GPU with its capacity and chance to fit, and which configs can be placed at all."""

    time: StepTime
    memory: StepMemory
    capacity_bytes: Vector
    fits: Vector
    placed: NDArray[np.bool_]


def mixed_step(
    reading: TrainingTask,
    rows: Sequence[Mapping[str, Any]],
    layout: ParallelLayout,
    calibration: TrainingCalibration,
    memory: MemoryConstants,
) -> MixedAnswer:
    """Predict configs on a cluster of several kinds of GPU."""
    counts = _counts(rows, reading)
    places, which = _placements(reading, layout, counts, shares(rows, reading))
    held = [_held(places, which, kind) for kind in range(len(reading.cluster.groups))]
    used = np.stack([stages.layers > 0 for stages in held])
    jobs = _jobs(reading, layout, places, which, used)
    one = [passes(job, calibration.constants, calibration.shapes.factor(job)) for job in jobs]
    pipeline_s, busy_s, parts = _pipelines(places, which, layout, one)
    ends = _ends(jobs, held, one, used, np.array([place.has_mixed_neighbours for place in places])[which], calibration)
    needs = [step_memory(job, memory, stages) for job, stages in zip(jobs, held, strict=True)]
    fits = _stack([feasible(need, job, memory) for need, job in zip(needs, jobs, strict=True)], used, np.inf)
    tight = np.argmax(_stack([need.total_bytes / job.memory_bytes for need, job in zip(needs, jobs, strict=True)], used, 0.0), axis=0)[None]

    def of_tightest(values: Sequence[Any]) -> Vector:
        return np.asarray(np.take_along_axis(_stack(values, used, 0.0), tight, axis=0)[0])

    names = ("total_bytes", *needs[0].parts())
    world = np.broadcast_to(layout.tp * layout.cp * layout.pp * layout.dp, which.shape)
    return MixedAnswer(
        time=whole_step(pipeline_s, busy_s, parts, ends, calibration.constants),
        memory=StepMemory(**{name: of_tightest([getattr(need, name) for need in needs]) for name in names}),
        capacity_bytes=of_tightest([job.memory_bytes for job in jobs]),
        fits=fits.min(axis=0),
        placed=np.array([place.whole for place in places])[which] & (world <= counts.sum(axis=0)),
    )


def _counts(rows: Sequence[Mapping[str, Any]], reading: TrainingTask) -> Vector:
    """GPUs of each kind that a config may use: its own numbers (`a100=8, a40=0`), else all there are."""
    return np.array(
        [
            [min(float(count), max(0.0, number(row.get(knob, reading.fixed.get(knob, count))))) for row in rows]
            for knob, (_, count) in zip(reading.cluster.knobs, reading.cluster.groups, strict=True)
        ]
    )


def shares(rows: Sequence[Mapping[str, Any]], reading: TrainingTask) -> Vector:
    """Work of a GPU of each kind, of what one of the first kind gets."""
    knobs = [f"{kind}{SHARE}" for kind in reading.cluster.knobs]
    return np.array([[max(MIN_SHARE, number(row.get(knob, reading.fixed.get(knob, 1.0)))) for row in rows] for knob in knobs])


_PLACED = ("tp", "pp", "dp", "cp", "virtual_stages", "stages_inner")
"""What of a layout decides its placement; all but the last are degrees."""


def _placements(reading: TrainingTask, layout: ParallelLayout, counts: Vector, parts: Vector) -> tuple[list[Placement], NDArray[np.intp]]:
    """The distinct placements, and which of them each config has."""
    count, kinds = counts.shape[1], len(counts)
    batches = np.ceil(reading.global_batch / np.maximum(layout.micro_batch, 1.0))
    columns = np.stack(
        [np.broadcast_to(value, (count,)) for value in (*(getattr(layout, name) for name in _PLACED), batches, *counts, *parts)]
    )
    distinct, which = np.unique(columns, axis=1, return_inverse=True)
    return [_placed(tuple(column), kinds, float(reading.shape.layers)) for column in distinct.T.tolist()], np.ravel(which)


@lru_cache(maxsize=20_000)
def _placed(column: tuple[float, ...], kinds: int, layers: float) -> Placement:
    """One column of `_placements`; searchers ask about the same layouts again and again."""
    asked, batches, rest = dict(zip(_PLACED, column, strict=False)), column[len(_PLACED)], column[len(_PLACED) + 1 :]
    ranks = asked["tp"] * asked["cp"] * asked["pp"] * asked["dp"]
    if not (ranks <= sum(rest[:kinds]) and asked["virtual_stages"] <= layers):
        asked |= dict.fromkeys(_PLACED[:-1], 1.0)  # more ranks than GPUs, or no number: not feasible, whatever its time
    return place(asked, np.array(rest[:kinds]), np.array(rest[kinds:]), layers, batches)


def _held(places: Sequence[Placement], which: NDArray[np.intp], kind: int) -> Stages:
    layers, ahead, last = np.array([place.stages(kind) for place in places])[which].T
    return Stages(layers=layers, ahead=ahead, last=last, micro_batches=np.array([place.micro_batches.max() for place in places])[which])


def _jobs(
    reading: TrainingTask, layout: ParallelLayout, places: Sequence[Placement], which: NDArray[np.intp], used: NDArray[np.bool_]
) -> list[TrainingJob]:
    """The job as each kind sees it: the network is as fast as the slowest kind in use, replicas of two kinds share no node."""
    jobs = [training_job(reading, layout, kind) for kind in range(len(used))]
    nic_rate = _stack([job.nic_rate for job in jobs], used, np.inf).min(axis=0)
    near = np.array([place.together for place in places])[which] * layout.cp * layout.replica_stride
    return [replace(job, nic_rate=nic_rate, node_gpus=smaller(job.node_gpus, near)) for job in jobs]


def _pipelines(
    places: Sequence[Placement], which: NDArray[np.intp], layout: ParallelLayout, one: Sequence[Passes]
) -> tuple[Vector, Vector, dict[str, Vector]]:
    """Seconds of the slowest replica's pipeline, seconds in which its ranks are busy on average, and those by part."""
    count = len(which)
    rows = np.arange(count)
    stages = np.array([len(place.layers) for place in places])[which]
    layers = _padded([place.layers[:, None] for place in places])[which, :, 0]  # configs x stages
    kinds = _padded([place.kinds for place in places])[which].astype(np.intp)  # configs x stages x columns
    batches = _padded([place.micro_batches[None] for place in places])[which, 0]  # configs x columns; 0 where there is none

    def by_kind(values: Sequence[Any]) -> Vector:
        return np.stack([np.broadcast_to(value, (count,)) for value in values])

    head_s = by_kind([part.head_s for part in one])
    stage_s = layers[:, :, None] * by_kind([part.layer_s for part in one])[kinds, rows[:, None, None]]
    micro_s, inside = by_kind([part.micro_s for part in one]), np.arange(layers.shape[1])[None, :] < stages[:, None]
    stage_s += inside[:, :, None] * micro_s[kinds, rows[:, None, None]]
    stage_s[rows, stages - 1] += head_s[kinds[rows, stages - 1], rows[:, None]]
    slowest_s, chain_s = stage_s.max(axis=1), stage_s.sum(axis=1)
    chunks = np.broadcast_to(layout.virtual_stages, (count,))[:, None]
    replica_s = np.where(batches > 0, batches * slowest_s + (chain_s - slowest_s) / chunks, 0.0)
    column = np.argmax(replica_s, axis=1)
    each = batches[rows, column] / stages
    mine = kinds[rows, :, column]  # configs x stages, of the slowest replica
    parts = {}
    for name in one[0].layer_parts:
        worked = (layers * by_kind([part.layer_parts[name] for part in one])[mine, rows[:, None]]).sum(axis=1)
        ended = by_kind([part.head_parts.get(name, 0.0) for part in one])[mine[rows, stages - 1], rows]
        parts[name] = (worked + ended) * each
    parts["host_s"] = parts["host_s"] + (inside * micro_s[mine, rows[:, None]]).sum(axis=1) * each
    return replica_s[rows, column], chain_s[rows, column] * each, parts


def _padded(tables: Sequence[NDArray[Any]]) -> Vector:
    """Tables of different sizes in one, zeros where they end."""
    padded = np.zeros((len(tables), *np.max([table.shape for table in tables], axis=0)))
    for number_, table in enumerate(tables):
        padded[number_, : table.shape[0], : table.shape[1]] = table
    return padded


def _ends(
    jobs: Sequence[TrainingJob],
    held: Sequence[Stages],
    one: Sequence[Passes],
    used: NDArray[np.bool_],
    crosses: NDArray[np.bool_],
    calibration: TrainingCalibration,
) -> dict[str, Vector]:
    """What comes besides the passes over the layers, each by the kind in use that takes longest."""
    by_kind = []
    for job, stages, part in zip(jobs, held, one, strict=True):
        apart = replace(job, node_gpus=np.where(crosses, 1.0, job.node_gpus))
        ends = step_ends(job, calibration.constants, stages, part)
        by_kind.append({**ends, "pipeline_s": sends_s(apart, calibration.constants, stages.micro_batches)})
    return {name: _stack([ends[name] for ends in by_kind], used, 0.0).max(axis=0) for name in by_kind[0]}


def _stack(values: Sequence[Any], used: NDArray[np.bool_], unused: float) -> Vector:
    """Kinds x configs; `unused` where a config does not use the kind."""
    return np.where(used, np.stack([np.broadcast_to(value, used.shape[1:]) for value in values]), unused)


__all__ = ["MixedAnswer", "mixed_step", "shares"]
