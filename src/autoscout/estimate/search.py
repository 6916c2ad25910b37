"""What to expect before anything is run: the best layouts by prediction, with their breakdown."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscout.catalog.models import ModelShape
from autoscout.core.config import Config, Value
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.task import Direction, Limit, Objective, Task
from autoscout.estimate.pins import SERVING_SYSTEMS, read_system, serving_pins, training_pins
from autoscout.simulators.serving.calibration import serving_calibration
from autoscout.simulators.serving.model import ServingModel, ServingOptions
from autoscout.simulators.serving.read import read_serving_task
from autoscout.simulators.training.model import TrainingAnswer, TrainingModel, TrainingOptions, metric_of
from autoscout.simulators.training.read import read_task

LIKELY = 0.5
"""Chance to fit from which on a configuration is ranked by speed; those below follow, by their chance."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One configuration as predicted; times in seconds, memory in bytes, both by part."""

    config: Config
    metrics: Mapping[str, float]
    parts: Mapping[str, float]
    memory: Mapping[str, float]
    feasible: float
    known: float
    spread: float

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
        }


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The best candidates, the number that was compared, and what the constants were made from."""

    candidates: tuple[Candidate, ...]
    compared: int
    fitting: int
    made_from: str
    objective: str

    @property
    def ranking(self) -> str:
        """How the candidates are ordered, for a person."""
        if not self.fitting:
            return "by chance to fit"
        return f"by {self.objective} if fits >= {LIKELY:.0%}, the others below by chance to fit"

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
            "made_from": self.made_from,
            "candidates": [candidate.to_json() for candidate in self.candidates],
        }


def _order(feasible: NDArray[np.float64], cost: NDArray[np.float64], need: NDArray[np.float64] | None = None) -> NDArray[np.intp]:
    """Likely to fit first, by cost; then the others, by chance to fit; of equally hopeless ones the smallest need first."""
    likely = feasible >= LIKELY
    need = np.zeros(len(cost)) if need is None else np.where(likely, 0.0, need)
    return np.lexsort((cost, need, np.where(likely, 0.0, -feasible), ~likely))


def estimate_training(
    system: str,
    *,
    model: str | Mapping[str, Any],
    gpus: str,
    sequence: int,
    global_batch: int,
    precision: str = "bf16",
    fixed: Mapping[str, Value] | None = None,
    top: int = 5,
    calibration: str = "",
    hardware: Mapping[str, Any] | None = None,
) -> Estimate:
    """Predict every sensible layout of a training job and return the fastest that fit."""
    fixed = training_pins(fixed or {})
    task = Task(
        system=read_system(system),
        objective=Objective(metric="step_s"),
        workload={"model": model, "sequence": sequence, "global_batch": global_batch, "precision": precision},
        hardware={"gpus": gpus, **(hardware or {})},
    )
    simulator = TrainingModel(TrainingOptions(calibration=calibration))
    reading = read_task(task)
    node_gpus = reading.cluster.node_gpus or reading.cluster.groups[0][0].node_gpus
    configs = [Config(layout) for layout in layouts(reading.shape, reading.cluster.gpus, node_gpus, sequence, global_batch, fixed)]
    if not configs:
        raise ConfigError(Fault(where="estimate", rule="no layout fits the pinned knobs and the GPUs", value=repr(fixed)))
    answer, prediction = simulator.answer(configs, task), simulator.predict(configs, task)
    order = _order(prediction.feasible, prediction.value, np.broadcast_to(answer.memory.total_bytes, (len(configs),)))
    metrics = {name: metric_of(name, prediction.value, reading) for name in ("step_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu")}
    return Estimate(
        candidates=tuple(
            Candidate(
                config=configs[row],
                metrics={name: float(value[row]) for name, value in metrics.items()},
                parts=_row(answer.time.parts(), row, len(configs)),
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
        objective="step_s",
    )


def layouts(
    shape: ModelShape, gpus: int, node_gpus: int, sequence: int, global_batch: int, fixed: Mapping[str, Value]
) -> Iterator[dict[str, Value]]:
    """Layouts that use all GPUs and divide evenly, with the pinned knobs as they are."""
    powers = [2**power for power in range(12) if 2**power <= gpus]
    contexts = [power for power in powers if power == 1 or sequence // power >= 4096]
    experts = [power for power in powers if shape.experts % power == 0] if shape.experts else [1]
    choices: dict[str, Sequence[Value]] = {
        "tp": [power for power in powers if power <= node_gpus and shape.heads % power == 0],
        "pp": [degree for degree in _divisors(gpus) if degree <= shape.layers],
        "cp": contexts,
        "ep": experts,
        "mbs": [1, 2, 4, 8],
        "ar": ["none", "selective", "full"],
        "vp": [1, 2, 4],
    }
    choices = {name: [fixed[name]] if name in fixed else values for name, values in choices.items()}
    for values in itertools.product(*choices.values()):
        layout: dict[str, Any] = dict(zip(choices, values, strict=True))
        tp, pp, cp, vp = (int(layout[name]) for name in ("tp", "pp", "cp", "vp"))
        if gpus % (tp * pp * cp) or (vp > 1 and (pp == 1 or shape.layers % (pp * vp))):
            continue
        dp = gpus // (tp * pp * cp)
        if global_batch % (dp * int(layout["mbs"])) or int(layout["ep"]) > dp * cp * tp or fixed.get("dp", dp) != dp:
            continue
        layout["dp"] = dp
        yield {**layout, "sp": tp > 1, **fixed}


def _divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


def _row(parts: Mapping[str, Any], row: int, count: int) -> dict[str, float]:
    return {name: float(np.broadcast_to(value, (count,))[row]) for name, value in parts.items()}


def _capacity(answer: TrainingAnswer, row: int, count: int) -> float:
    return float(np.broadcast_to(answer.capacity_bytes, (count,))[row])


def estimate_serving(
    system: str,
    *,
    model: str | Mapping[str, Any],
    gpus: str,
    input_tokens: int,
    output_tokens: int,
    concurrency: int | None = None,
    request_rate: float | None = None,
    limits: Sequence[str] = (),
    fixed: Mapping[str, Value] | None = None,
    top: int = 5,
    calibration: str = "",
    hardware: Mapping[str, Any] | None = None,
) -> Estimate:
    """Predict layouts and batching limits of a server and return the best: most output, or most requests within the limits."""
    fixed = serving_pins(fixed or {})
    metric = "request_goodput" if limits else "output_throughput"
    load = {"concurrency": concurrency, "request_rate": request_rate}
    task = Task(
        system=read_system(system).replace("tensorrt-llm", "trtllm"),
        objective=Objective(metric=metric, direction=Direction.MAXIMIZE, limits=tuple(Limit.parse(text) for text in limits)),
        workload={"model": model, "input_tokens": input_tokens, "output_tokens": output_tokens, **{k: v for k, v in load.items() if v}},
        hardware={"gpus": gpus, **(hardware or {})},
    )
    simulator = ServingModel(ServingOptions(calibration=calibration))
    _check_limits(task)
    reading = read_serving_task(task)
    tp = int(fixed.get("tensor_parallel_size") or 1)
    if reading.shape.heads % tp:
        rule = f"must divide the model's {reading.shape.heads} attention heads"
        raise ConfigError(Fault(where="--set", field="tensor_parallel_size", value=str(tp), rule=rule))
    configs = _deployments(reading.cluster.groups[0][1], fixed)
    prediction = simulator.predict(configs, task)
    values = [simulator.metrics(config, task) for config in configs]
    replicas = np.array([float(config["data_parallel_size"] or 1) for config in configs])  # fewer, larger ones come closer to fitting
    order = _order(prediction.feasible, np.where(np.isnan(prediction.value), replicas, -prediction.value))
    shown = ("output_throughput", "request_throughput", "request_goodput", "median_ttft_ms", "p95_ttft_ms", "median_tpot_ms", "p95_tpot_ms")
    return Estimate(
        candidates=tuple(
            Candidate(
                config=configs[row],
                metrics={name: values[row][name] for name in shown if name in values[row]},
                parts={},
                memory={"cache_tokens": values[row].get("cache_tokens", 0.0)},
                feasible=float(prediction.feasible[row]),
                known=float(prediction.known[row]),
                spread=float(prediction.spread[row]),
            )
            for row in _distinct(order.tolist(), configs, values)[:top]
        ),
        compared=len(configs),
        fitting=int((prediction.feasible >= LIKELY).sum()),
        made_from=serving_calibration(calibration or None).made_from,
        objective=metric,
    )


def _check_limits(task: Task) -> None:
    known = ("ttft", "tpot", "itl", "e2e")
    rule = f"not a latency that the model predicts; it must name one of: {', '.join(known)}"
    faults = [
        Fault(where="--slo", value=repr(limit.metric), rule=rule, fix="Example: --slo 'p95_ttft_ms<=500'")
        for limit in task.objective.limits
        if not any(word in limit.metric for word in known)
    ]
    if faults:
        raise ConfigError(faults)


def _distinct(order: Sequence[int], configs: Sequence[Config], values: Sequence[Mapping[str, float]]) -> list[int]:
    """Without those that the load does not tell from a better one: same layout, same prediction."""
    seen: set[tuple[object, ...]] = set()
    found = []
    for row in order:
        layout = (configs[row]["tensor_parallel_size"], configs[row]["data_parallel_size"])
        key = (*layout, *(f"{value:.4g}" for value in values[row].values()))
        if key not in seen:
            seen.add(key)
            found.append(row)
    return found


def _deployments(count: int, fixed: Mapping[str, Value]) -> list[Config]:
    choices: dict[str, Sequence[Value]] = {
        "tensor_parallel_size": [2**power for power in range(4) if count % 2**power == 0 and 2**power <= count],
        "max_num_seqs": [256, 64, 1024],
        "max_num_batched_tokens": [8192, 2048],
    }
    choices = {name: [fixed[name]] if name in fixed else values for name, values in choices.items()}
    found = [dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())]
    stages = int(fixed.get("pipeline_parallel_size") or 1)
    replicas = [count // (int(values["tensor_parallel_size"] or 1) * stages) for values in found]
    if not any(replicas):
        least = min(int(values["tensor_parallel_size"] or 1) for values in found) * stages
        rule = f"one replica needs {least} GPUs, there are {count}"
        raise ConfigError(Fault(where="--set", field="tensor_parallel_size x pipeline_parallel_size", value=str(least), rule=rule))
    return [Config({**values, "data_parallel_size": each, **fixed}) for values, each in zip(found, replicas, strict=True) if each]


__all__ = ["SERVING_SYSTEMS", "Candidate", "Estimate", "estimate_serving", "estimate_training", "layouts"]
