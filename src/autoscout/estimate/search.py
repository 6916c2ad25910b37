"""What to expect before anything is run: the best configurations by prediction, with where their time and memory go."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscout.catalog.gpus import Cluster
from autoscout.catalog.own_studies import LocalScale, local_scale
from autoscout.catalog.training_knobs import SHARE
from autoscout.core.config import Config, Value
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.task import Direction, Limit, Objective, Task
from autoscout.estimate.baseline import ServedBaseline, served_baseline
from autoscout.estimate.defaults import engine_default
from autoscout.estimate.deployments import SEQS, STEP, deployments
from autoscout.estimate.layouts import Ground, layouts, no_layout
from autoscout.estimate.pins import SERVING_SYSTEMS, check_kinds, read_system, serving_pins, training_pins
from autoscout.simulators.serving.calibration import serving_calibration
from autoscout.simulators.serving.model import ServingModel, ServingOptions
from autoscout.simulators.serving.read import CAPACITY, ServingTask, read_serving_task
from autoscout.simulators.training.model import TrainingAnswer, TrainingModel, TrainingOptions, metric_of
from autoscout.simulators.training.read import read_task
from autoscout.traffic.description import Traffic
from autoscout.traffic.words import summary

LATENCY = "p95_e2el_ms"
PROBED = 8
"""Deployments whose highest rate within limits is looked for, which takes some ten simulations each."""
LIKELY = 0.5
"""Configurations with at least this chance to fit are ranked by speed times that chance; the others follow, by their chance."""
ALIKE = 0.03
"""Share by which predictions differ that are taken for equal: the rates that are probed for a capacity lie that close in the end."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One configuration as predicted; times in seconds, memory in bytes, both by part."""

    config: Config
    metrics: Mapping[str, float]
    parts: Mapping[str, float]
    memory: Mapping[str, float]
    feasible: float  # chance to fit into memory
    known: float  # 1 inside the data that made the constants, near 0 far from it
    spread: float  # standard deviation of the error to expect, as a share of the value
    gain: float | None = None  # how many times better than the engine's default by what is ranked; None where that is not known
    is_default: bool = False  # what the engine does when nobody sets anything
    gain_over_baseline: float | None = None  # likewise over what the user runs today
    is_baseline: bool = False  # what the user runs today

    def to_json(self) -> dict[str, Any]:
        """Plain data, marked as simulated."""
        return {
            "fidelity": "simulated",
            "config": self.config.to_json(),
            "metrics": dict(self.metrics),
            "parts_s": dict(self.parts),
            "memory_bytes": dict(self.memory),
            "feasible": self.feasible,
            "known": self.known,
            "spread": self.spread,
            "gain": self.gain,
            "is_default": self.is_default,
            "gain_over_baseline": self.gain_over_baseline,
            "is_baseline": self.is_baseline,
        }


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The best candidates, the number that was compared, and what the constants were made from."""

    candidates: tuple[Candidate, ...]
    compared: int
    fitting: int
    made_from: str
    objective: str
    load: str  # what is assumed to be asked, in words
    local: str = ""  # what own studies changed; empty for nothing

    @property
    def ranking(self) -> str:
        """How the candidates are ordered, for a person."""
        if not self.fitting:
            return "by chance to fit"
        return f"by {self.objective} if fits >= {LIKELY:.0%}, the others below by chance to fit"

    @property
    def recommended(self) -> Candidate:
        """The first; what the user runs today, or else the default, where that is not predicted to gain more than the error to expect."""
        best = self.candidates[0]
        default = next((candidate for candidate in self.candidates if candidate.is_default), None)
        baseline = next((candidate for candidate in self.candidates if candidate.is_baseline), None)
        stays = baseline is not None and baseline.feasible >= LIKELY
        if baseline is not None and stays and not _clear(best, best.gain_over_baseline):
            return baseline
        if default is None or default.feasible < LIKELY or _clear(best, best.gain):
            return best
        return best if stays and not _clear(default, default.gain_over_baseline) else default

    @property
    def warnings(self) -> tuple[str, ...]:
        """What must not be overlooked."""
        return () if self.fitting else ("nothing is predicted to fit; these come closest, expect them to fail",)

    def to_json(self) -> dict[str, Any]:
        """Plain data, marked as simulated."""
        return {
            "fidelity": "simulated",
            "objective": self.objective,
            "compared": self.compared,
            "fitting": self.fitting,
            "ranking": self.ranking,
            "warnings": list(self.warnings),
            "load": self.load,
            "made_from": self.made_from,
            "local": self.local,
            "candidates": [candidate.to_json() for candidate in self.candidates],
        }


def _clear(candidate: Candidate, gain: float | None) -> bool:
    """Whether a gain is more than the error to expect; one that is not known, because nothing could be gained over, is."""
    return gain is None or gain > 1.0 + candidate.spread


def _order(feasible: NDArray[np.float64], cost: NDArray[np.float64], need: NDArray[np.float64] | None = None) -> NDArray[np.intp]:
    """Likely to fit first, by cost; then the others, by chance to fit, and among equal chances by the memory they need."""
    likely = feasible >= LIKELY
    need = np.zeros(len(cost)) if need is None else np.where(likely, 0.0, need)
    return np.lexsort((cost, need, np.where(likely, 0.0, -feasible), ~likely))


def estimate(
    system: str,
    *,
    model: str | Mapping[str, Any],
    gpus: str,
    sequence: int = 4096,
    global_batch: int = 256,
    precision: str = "",
    input_tokens: int = 1024,
    output_tokens: int = 256,
    concurrency: int | None = None,
    request_rate: float | None = None,
    limits: Sequence[str] = (),
    pins: Mapping[str, Value] | None = None,
    top: int = 5,
    calibration: str = "",
    hardware: Mapping[str, Any] | None = None,
    results: str | Path = "",
    allow_lossy: bool = False,
    disaggregated: bool = False,
    baseline: Mapping[str, Value] | None = None,
    traffic: Traffic | None = None,
) -> Estimate:
    """Predict the best configurations of a training job or a server. Nothing is run, no GPU is needed.

    >>> found = estimate("megatron", model="llama-3.1-8b", gpus="8xA100-80", pins={"tp": 4})
    >>> found.candidates[0].config["tp"]
    4

    Args:
        system: Software: `megatron`, `fsdp`, `deepspeed`, ... for training; `vllm`, `sglang`, `trtllm` for serving.
        model: A known model, a Hugging Face path, a config.json, or the fields of one.
        gpus: COUNTxGPU, joined by + for mixed clusters: `8xA100-80+4xA40`.
        sequence: Training: tokens per sequence.
        global_batch: Training: sequences per step.
        precision: Of the linear layers: `bf16`, `fp8` or `fp4`; empty = bf16 for training, for serving as the weights are published. For
            serving, a pinned `precision`, `quantization` or `dtype` wins.
        input_tokens: Serving: tokens per prompt.
        output_tokens: Serving: tokens per answer.
        concurrency: Serving: requests in flight; 64 when neither this nor `request_rate` is given. With `limits` and neither, the highest
            rate within them is looked for.
        request_rate: Serving: requests per second.
        limits: Serving: bounds on latencies such as `p95_ttft_ms<=500`; then the requests per second within them count.
        pins: Knobs that stay as they are.
        top: How many candidates to return.
        calibration: File of `autoscout calibrate`; the shipped one when empty.
        hardware: More facts: `nic_gbps`, `node_gpus`, `hardware_file`.
        results: Folder of result folders: what own studies measured on the same GPU with the same system scales the times.
        allow_lossy: Serving: compare narrower weights and caches too, which change answers.
        disaggregated: Serving: compare deployments too that compute prompts on GPUs of their own.
        traffic: Serving: what is asked, in the place of the two lengths.
        baseline: Serving: knobs that the user runs today, by the engine's names or ours: a row of its own, which no pin changes.

    Raises:
        ConfigError: unknown system, model, GPU, knob or latency, or nothing is possible under the pins.
    """
    system, chosen, facts = read_system(system), dict(pins or {}), {"gpus": gpus, **(hardware or {})}

    def local(simulator: str, gpu: str) -> LocalScale:
        return local_scale(Path(results), simulator, gpu, system) if results and not calibration else LocalScale()

    if system not in SERVING_SYSTEMS:
        work: dict[str, Any] = {"model": model, "sequence": sequence, "global_batch": global_batch, "precision": precision or "bf16"}
        task = Task(system=system, objective=Objective(metric="step_s"), workload=work, hardware=facts)
        return _training(task, training_pins(chosen), top, calibration, local)
    if request_rate and concurrency:
        raise _load_twice(f"{request_rate:g} and {concurrency}")
    if precision and not {"precision", "quantization", "dtype"} & chosen.keys():
        chosen["precision"] = precision
    load = {"request_rate": request_rate} if request_rate else {"concurrency": concurrency or 64}
    lengths = {"input_tokens": input_tokens, "output_tokens": output_tokens} if traffic is None else traffic.to_load()
    metric = ("request_goodput" if request_rate or concurrency else CAPACITY) if limits else "output_throughput"
    task = Task(
        system=system.replace("tensorrt-llm", "trtllm"),
        objective=Objective(metric=metric, direction=Direction.MAXIMIZE, limits=tuple(Limit.parse(text) for text in limits)),
        workload={"model": model, **lengths, **load},
        hardware=facts,
    )
    own = None if baseline is None else served_baseline(baseline)
    return _serving(task, serving_pins(chosen), top, calibration, local, {"lossy": allow_lossy, "apart": disaggregated}, own)


def _training(task: Task, pins: Mapping[str, Value], top: int, calibration: str, local: Callable[..., LocalScale]) -> Estimate:
    """Predict every sensible layout of a training job; the fastest that fit come first."""
    reading = read_task(task)
    scale = local("training", reading.cluster.groups[0][0].name)
    simulator = TrainingModel(TrainingOptions(calibration=calibration, factor=scale.factor))
    check_kinds(pins, reading.cluster)
    assumes = simulator.calibration(task)
    ground = Ground(
        shape=reading.shape,
        gpus=reading.cluster.gpus,
        node_gpus=reading.cluster.node_gpus or reading.cluster.groups[0][0].node_gpus,
        sequence=int(reading.sequence),
        global_batch=int(reading.global_batch),
        plain_attention=assumes.assumes.get("attention", 0.0) > 0,
        ends=2 if assumes.name == "megatron-core" else 0,
    )
    ways = [(replace(ground, gpus=gpus), {**division, **pins}) for gpus, division in _divisions(reading.cluster, pins)]
    configs = [Config(layout) for some, knobs in ways for layout in layouts(some, knobs)]
    if not configs or simulator.predict(configs, task).feasible.max() < LIKELY:
        configs += [Config(layout) for some, knobs in ways for layout in layouts(some, knobs, deep=True)]
    if not configs:
        raise no_layout(ground, pins)
    answer, prediction = simulator.answer(configs, task), simulator.predict(configs, task)
    expected_s = prediction.value / np.maximum(prediction.feasible, 1e-9)  # a layout that may not fit is worth less than one that does
    order = _order(prediction.feasible, expected_s, np.broadcast_to(answer.memory.total_bytes, (len(configs),)))
    metrics = {name: metric_of(name, prediction.value, reading) for name in ("step_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu")}
    return Estimate(
        candidates=tuple(
            Candidate(
                config=configs[row],
                metrics={name: float(value[row]) for name, value in metrics.items()},
                parts={name: part_s * scale.factor for name, part_s in _row(answer.time.parts(), row, len(configs)).items()},
                memory={**_row(answer.memory.parts(), row, len(configs)), "capacity_bytes": _capacity(answer, row, len(configs))},
                feasible=float(prediction.feasible[row]),
                known=float(prediction.known[row]),
                spread=float(prediction.spread[row]),
            )
            for row in order[:top]
        ),
        compared=len(configs),
        fitting=int((prediction.feasible >= LIKELY).sum()),
        made_from=simulator.calibration(task).made_from,
        objective="step_s over the chance to fit",
        load=f"{reading.global_batch:g} sequences of {reading.sequence:g} tokens a step",
        local=scale.sentence,
    )


def _divisions(cluster: Cluster, pins: Mapping[str, Value]) -> Iterator[tuple[int, dict[str, Value]]]:
    """Ways to use several kinds of GPU, as how many GPUs and the knobs that say so: some or all kinds, work in equal shares or by speed."""
    knobs, counts = cluster.knobs, {knob: count for knob, (_, count) in zip(cluster.knobs, cluster.groups, strict=True)}
    by_speed: dict[str, Value] = {f"{knob}{SHARE}": round(speed, 2) for knob, speed in zip(knobs[1:], cluster.speeds[1:], strict=True)}
    divisions: list[tuple[int, dict[str, Value]]] = []
    for kinds, shares, inner in itertools.product(range(len(knobs), 0, -1), ({}, by_speed), (False, True)):
        used = {knob: int(pins[knob] or 0) if knob in pins else count * (knob in knobs[:kinds]) for knob, count in counts.items()}
        division: dict[str, Value] = {knob: count for knob, count in used.items() if count != counts[knob]}
        if sum(map(bool, used.values())) > 1:
            division |= {**shares, **({"stages_inner": True} if inner else {})}
        if (way := (sum(used.values()), division)) not in divisions:
            divisions.append(way)
            yield way


def _row(parts: Mapping[str, Any], row: int, count: int) -> dict[str, float]:
    return {name: float(np.broadcast_to(value, (count,))[row]) for name, value in parts.items()}


def _capacity(answer: TrainingAnswer, row: int, count: int) -> float:
    return float(np.broadcast_to(answer.capacity_bytes, (count,))[row])


def _serving(
    task: Task,
    pins: Mapping[str, Value],
    top: int,
    calibration: str,
    local: Callable[..., LocalScale],
    offered: Mapping[str, bool],
    own: ServedBaseline | None,
) -> Estimate:
    """Predict layouts and batching limits of a server; the default, the user's own and what serves the load best come first."""
    _check_limits(task)
    reading = read_serving_task(task)
    scale = local("serving", reading.cluster.groups[0][0].name)
    simulator = ServingModel(ServingOptions(calibration=calibration, factor=scale.factor))
    configs, default, baseline = _served(task, reading, pins, offered, own)
    compared, room = len(configs), None
    always = [config for config in (baseline, default) if config is not None]
    if reading.capacity:
        configs, room = _promising(simulator, configs, task, always)
    prediction = simulator.predict(configs, task)
    values = [simulator.metrics(config, task) for config in configs]
    replicas = np.array([float(config["data_parallel_size"] or 1) for config in configs])  # fewer, larger ones come closer to fitting
    is_default, is_baseline = (np.array([config == one for config in configs]) for one in (default, baseline))
    is_known = is_default | is_baseline
    merit, objective, holds = _merit(simulator, configs, task, reading, prediction.value, values)
    order = _order(prediction.feasible, np.where(np.isnan(merit), replicas, -merit * (1.0 + ALIKE * is_known)))
    rows = _distinct(order.tolist(), configs, values)
    rows = list(dict.fromkeys([*rows[:top], *np.flatnonzero(is_known).tolist()]))
    metrics: tuple[str, ...] = ("output_throughput", "request_throughput", "request_goodput", "goodput_share")
    metrics = ("capacity_rps",) if reading.capacity else metrics  # a probe is too short for the others
    metrics += (LATENCY,) if reading.request_rate is not None else ()
    metrics += ("median_ttft_ms", "p95_ttft_ms", "median_tpot_ms", "p95_tpot_ms")
    return Estimate(
        candidates=tuple(
            Candidate(
                config=configs[row],
                metrics={name: values[row][name] * (_factor(name, scale.factor)) for name in metrics if name in values[row]},
                parts={},
                memory={"cache_tokens": values[row].get("cache_tokens", 0.0)},
                feasible=float(prediction.feasible[row]),
                known=float(prediction.known[row]),
                spread=float(prediction.spread[row]),
                gain=_gain(merit, row, is_default, holds),
                is_default=bool(is_default[row]),
                gain_over_baseline=_gain(merit, row, is_baseline, holds),
                is_baseline=bool(is_baseline[row]),
            )
            for row in rows
        ),
        compared=compared,
        fitting=int((prediction.feasible >= LIKELY).sum()) if room is None else room,
        made_from=serving_calibration(calibration or None).made_from,
        objective=objective,
        load=_words(reading, task),
        local=scale.sentence,
    )


def _served(
    task: Task, reading: ServingTask, pins: Mapping[str, Value], offered: Mapping[str, bool], own: ServedBaseline | None
) -> tuple[list[Config], Config | None, Config | None]:
    """The deployments to compare, and which of them are the engine's default and what the user runs today."""
    default = engine_default(task)
    if own is None:
        configs = deployments(reading, pins, default, {}, {}, **offered)
        return configs, configs[0] if default else None, None
    rest = own.without(pins, lossy=offered["lossy"])
    configs = deployments(reading, {**rest.formats, **pins}, default, own.layout, rest.others, **offered)
    unpinned = deployments(reading, {}, default or {"tensor_parallel_size": 1}, {}, {}, **offered)[0]
    baseline = own.config(unpinned)
    return list(dict.fromkeys([baseline, *configs])), configs[0] if default else None, baseline


def _gain(merit: NDArray[np.float64], row: int, is_reference: NDArray[np.bool_], holds: NDArray[np.bool_]) -> float | None:
    """How many times better a row is than the reference; None where that is not known, or only one of them holds the rate."""
    if not is_reference.any() or holds[row] != holds[is_reference][0]:
        return None
    usual = float(merit[is_reference][0])
    return float(merit[row] / usual) if usual > 0 and merit[row] > 0 else None


def _merit(
    simulator: ServingModel,
    configs: Sequence[Config],
    task: Task,
    reading: ServingTask,
    value: NDArray[np.float64],
    values: Sequence[Mapping[str, float]],
) -> tuple[NDArray[np.float64], str, NDArray[np.bool_]]:
    """What configurations are ranked by, more is better, its name, and which hold the rate of requests.

    At a rate of requests all that keep up answer the same, so that throughput would rank how quickly the last ones drain: those that keep
    up are ranked by how far they stay below their limits, or by their latency, and the others by the rate that they could hold.
    """
    rate = reading.request_rate
    if rate is None or reading.capacity:
        return value, task.objective.metric, np.ones(len(configs), dtype=np.bool_)
    holds = np.array([simulator.busy_rate(config, task) for config in configs]) / rate
    limits = reading.limits or {LATENCY: 1.0}
    room = [min((bound / one[name] for name, bound in limits.items() if one.get(name, 0.0) > 0), default=math.nan) for one in values]
    slow = min((reach for reach in room if reach > 0), default=1.0)
    what = "distance to the limits" if reading.limits else LATENCY
    merit = np.where(holds >= 1.0, np.array(room), slow * np.minimum(holds, 1.0) * 0.5)
    return merit, f"{what} where {rate:g} requests/s are held", holds >= 1.0


def _words(reading: ServingTask, task: Task) -> str:
    """The load in words."""
    lengths = f"prompts of {reading.input_tokens} tokens, answers of {reading.output_tokens}"
    if reading.windows:
        lengths = summary(Traffic.from_json(task.workload["traffic"]))
    if reading.capacity:
        return f"{lengths}, at the highest rate within the limits"
    rate = reading.request_rate
    return f"{lengths}, {f'{rate:g} requests/s' if rate is not None else f'{reading.concurrency} requests at once'}"


def _factor(name: str, factor: float) -> float:
    """By which a metric changes where everything takes `factor` times as long."""
    if name == "goodput_share":
        return 1.0
    return factor if name.endswith("_ms") else 1.0 / factor


def _promising(simulator: ServingModel, configs: Sequence[Config], task: Task, always: Sequence[Config]) -> tuple[list[Config], int]:
    """Those that answer most with all hands busy, which no rate within limits passes by much, and some always; how many have room."""
    rates = np.array([simulator.busy_rate(config, task) for config in configs])
    order = np.argsort(-np.nan_to_num(rates, nan=0.0), kind="stable")
    best = [configs[row] for row in order[:PROBED].tolist()]
    return list(dict.fromkeys([*best, *always])), int(np.isfinite(rates).sum())


def _load_twice(value: str) -> ConfigError:
    rule = "give the load once: requests in flight, or requests per second"
    return ConfigError(Fault(where="estimate", field="request rate and concurrency", value=value, rule=rule))


def _check_limits(task: Task) -> None:
    kinds = ("ttft", "tpot", "itl", "e2e")
    rule = f"not a latency that the model predicts; it must name one of: {', '.join(kinds)}"
    faults = [
        Fault(where="limits (--slo)", value=repr(limit.metric), rule=rule, fix="Example: p95_ttft_ms<=500")
        for limit in task.objective.limits
        if not any(word in limit.metric for word in kinds)
    ]
    faults += [
        Fault(where="limits (--slo)", field=limit.metric, value=f"{limit.value:g}", rule="a latency has a positive upper bound")
        for limit in task.objective.limits
        if not (0.0 < limit.value < float("inf")) or not limit.op.startswith("<")
    ]
    if faults:
        raise ConfigError(faults)


def _distinct(order: Sequence[int], configs: Sequence[Config], values: Sequence[Mapping[str, float]]) -> list[int]:
    """Rows without those that have the layout and the prediction of an earlier one: batching limits that this load never reaches."""
    keys: set[tuple[object, ...]] = set()
    rows = []
    for row in order:
        layout = tuple(value for name, value in configs[row].items() if name not in (SEQS, STEP))
        key = (*layout, *(f"{value:.4g}" for value in values[row].values()))
        if key not in keys:
            keys.add(key)
            rows.append(row)
    return rows


__all__ = ["Candidate", "Estimate", "estimate"]
