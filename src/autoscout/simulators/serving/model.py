"""Model of LLM serving: decode and prefill roofline, cache capacity, and the loop of continuous batching."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from autoscout.core import seeds
from autoscout.core.config import Config
from autoscout.core.protocols import Prediction
from autoscout.core.task import Direction, Objective, Task
from autoscout.core.trial import Fidelity, Trial
from autoscout.simulators.serving.calibration import ServingCalibration, serving_calibration
from autoscout.simulators.serving.cost import step_cost
from autoscout.simulators.serving.loop import Request, Served, serve
from autoscout.simulators.serving.read import KNOBS, Deployment, ServingTask, deployment, read_serving_task
from autoscout.simulators.serving.step import cache_tokens
from autoscout.space import Choice, Grid, Space

PERCENTILES = {"mean": None, "median": 50.0, "p50": 50.0, "p75": 75.0, "p90": 90.0, "p95": 95.0, "p99": 99.0}

PROBES = 8  # rates that are tried for a capacity; half of the distance on a log scale each, from the rate of a busy server downwards
MOST_BUSY = 256  # requests in flight of a server that is as busy as it can be
QUEUE_MS = 10_000.0  # a wait for the first token that means a growing queue, where no limit is stricter


@dataclass(frozen=True, kw_only=True)
class ServingOptions:
    """Settings of the serving model.

    Attributes:
        calibration: File written by `autoscout calibrate`; empty takes the shipped one.
        adapt: Learn one scale factor per job from measured trials.
        seed: Names the arrivals and lengths that are drawn.
        length_spread: Lengths vary uniformly by this share around the task's, as load generators do (0 = all equal).
    """

    calibration: str = ""
    adapt: bool = True
    seed: int = 0
    length_spread: float = 0.0


class ServingModel:
    """Predicts throughput, latency percentiles and goodput of an LLM server from model, GPUs, engine knobs and load."""

    needs_no_trials: ClassVar[bool] = True

    def __init__(self, options: ServingOptions | None = None) -> None:
        self.options = options or ServingOptions()
        self._calibration: ServingCalibration = serving_calibration(self.options.calibration or None)
        self._seen: tuple[Task, ServingTask] | None = None
        self._memory: dict[tuple[str, str], dict[str, float]] = {}
        self._runs: dict[object, dict[str, float]] = {}
        self._scale = 1.0

    @classmethod
    def example(cls) -> tuple[Space, Task]:
        """A small model under a light load."""
        workload = {"model": "llama-3.1-8b", "input_tokens": 256, "output_tokens": 32, "concurrency": 8, "requests": 16}
        objective = Objective(metric="output_throughput", direction=Direction.MAXIMIZE)
        task = Task(system="vllm", objective=objective, workload=workload, hardware={"gpus": "4xH100"})
        return Space([Choice("tensor_parallel_size", [1, 2, 4]), Grid("max_num_seqs", values=[4, 8, 64], default=64)]), task

    @property
    def knobs(self) -> frozenset[str]:
        return frozenset(name for names in KNOBS.values() for name in names)

    def predict(self, configs: Sequence[Config], task: Task) -> Prediction:
        metric = task.objective.metric
        answers = [self.metrics(config, task) for config in configs]
        scale = 1.0 / self._scale if _rate(metric) else self._scale
        value = np.array([answer.get(metric, np.nan) for answer in answers]) * scale
        feasible = np.array([answer["feasible"] for answer in answers])
        known = np.full(len(answers), self._known(task))
        return Prediction(value=value, spread=self._spread(task) * (2.0 - known), feasible=feasible, known=known)

    def fit(self, trials: Sequence[Trial], task: Task) -> None:
        """Learn one scale of all times from measured trials."""
        self._scale = 1.0
        if not self.options.adapt:
            return
        metric = task.objective.metric
        ratios = []
        for trial in trials:
            value = trial.measurement.metrics.get(metric, 0.0)
            if trial.ok and trial.measurement.fidelity is Fidelity.MEASURED and value > 0:
                guess = self.metrics(trial.config, task).get(metric, 0.0)
                if guess > 0:
                    ratios.append((guess / value) if _rate(metric) else (value / guess))
        if ratios:
            self._scale = float(np.exp(np.median(np.log(ratios)) * len(ratios) / (len(ratios) + 0.3)))

    def metrics(self, config: Config, task: Task) -> dict[str, float]:
        """Every metric of one config, and `feasible`: names as benchmark tools print them, times in ms."""
        reading = self._read(task)
        key = (task.key if self._seen is None else str(id(self._seen[0])), config.only(self.knobs).canonical)
        if key not in self._memory:
            if len(self._memory) > 20_000:
                self._memory.clear()
            self._memory[key] = self._simulate(deployment(config, reading), reading)
        return self._memory[key]

    def served(self, config: Config, task: Task) -> Served:
        """The requests of one replica, as clients would see them."""
        reading = self._read(task)
        return self._run(deployment(config, reading), reading)

    def _read(self, task: Task) -> ServingTask:
        if self._seen is None or self._seen[0] is not task:
            self._seen = (task, read_serving_task(task))
            self._memory.clear()
            self._runs.clear()
        return self._seen[1]

    def _spread(self, task: Task) -> float:
        if "ttft" in task.objective.metric:
            return self._calibration.first_spread
        return self._calibration.expert_spread if self._read(task).shape.experts else self._calibration.spread

    def _known(self, task: Task) -> float:
        reading = self._read(task)
        gpu = reading.cluster.groups[0][0].name.lower()
        seen = any(gpu in name.lower().replace("_sxm", "") or name.lower().replace("_sxm", "") == gpu for name in self._calibration.gpus)
        return (1.0 if seen else 0.6) if self._calibration.rows else 0.25

    def _simulate(self, found: Deployment, reading: ServingTask) -> dict[str, float]:
        capacity = float(cache_tokens(found.job, found.memory_share))
        need = reading.input_tokens + reading.output_tokens
        if not found.fits or capacity < need:
            return {"feasible": 0.0 if not found.fits or capacity <= 0 else 0.1}
        # Room in the cache and requests at once beyond all that is ever sent change nothing: no second run for them.
        most = max(reading.requests, MOST_BUSY)
        limits = replace(found.limits, max_requests=min(found.limits.max_requests, most))
        key = (found.job, limits, found.replicas, min(capacity, most * need))
        if key not in self._runs:
            self._runs[key] = self._answer(found, reading)
        values = self._runs[key]
        room = np.log(capacity / need)
        return {**values, "feasible": float(1.0 / (1.0 + np.exp(-4.0 * room - 1.0))), "cache_tokens": capacity}

    def _answer(self, found: Deployment, reading: ServingTask) -> dict[str, float]:
        if reading.capacity:
            return self._capacity(found, reading)
        return self._summary(self._run(found, reading), found, reading)

    def _run(self, found: Deployment, reading: ServingTask) -> Served:
        capacity = float(cache_tokens(found.job, found.memory_share))
        cost = step_cost(found.job, self._calibration.constants)
        limits = replace(found.limits, cache_tokens=capacity)
        # the replicas share the load evenly: one of them represents all
        count = max(8, -(-reading.requests // found.replicas))
        draw = seeds.stream(self.options.seed, "serving")
        spread = self.options.length_spread
        lengths = draw.uniform(1.0 - spread, 1.0 + spread, size=(count, 2))
        arrivals = np.zeros(count)
        concurrency = None
        if reading.request_rate is not None:
            arrivals = np.cumsum(draw.exponential(found.replicas / reading.request_rate, size=count))
        else:
            concurrency = max(1, -(-(reading.concurrency or 1) // found.replicas))
        requests = [
            Request(
                input_tokens=max(1, int(reading.input_tokens * lengths[row, 0])),
                output_tokens=max(1, int(reading.output_tokens * lengths[row, 1])),
                arrival_s=float(arrivals[row]),
            )
            for row in range(count)
        ]
        return serve(requests, cost, limits, concurrency)

    def _summary(self, served: Served, found: Deployment, reading: ServingTask) -> dict[str, float]:
        values: dict[str, float] = {}
        times = {
            "ttft": served.first_token_s,
            "tpot": served.interval_s,
            "e2e": served.total_s,
            "e2el": served.total_s,
        }
        for name, seconds in times.items():
            good = seconds[np.isfinite(seconds)]
            for word, percent in PERCENTILES.items():
                if len(good):
                    values[f"{word}_{name}_ms"] = 1e3 * float(good.mean() if percent is None else np.percentile(good, percent))
        values |= _gaps(served)
        finished = int(np.isfinite(served.total_s).sum())
        span_s = max(served.finished_s, 1e-9)
        if reading.request_rate is not None:  # a short draw of arrivals may run ahead of the rate: no server answers more than it is asked
            span_s = max(span_s, len(served.total_s) * found.replicas / reading.request_rate)
        values["output_throughput"] = served.output_tokens / span_s * found.replicas
        values["request_throughput"] = finished / span_s * found.replicas
        values["total_token_throughput"] = (served.output_tokens + finished * reading.input_tokens) / span_s * found.replicas
        values["output_throughput_per_gpu"] = values["output_throughput"] / max(1.0, found.job.tp * found.job.pp * found.replicas)
        values["preemptions"] = float(served.preemptions)
        values["request_goodput"] = values["goodput"] = self._goodput(served, reading, found, span_s)
        return values

    def _capacity(self, found: Deployment, reading: ServingTask) -> dict[str, float]:
        """The highest rate that keeps every limit, and the metrics there; none at all where no rate does."""
        busy = replace(reading, request_rate=None, concurrency=min(found.limits.max_requests * found.replicas, MOST_BUSY))
        top = self._summary(self._run(found, busy), found, busy)["request_throughput"]

        def probe(rate: float) -> dict[str, float] | None:
            at = replace(reading, request_rate=rate, concurrency=None)
            values = self._summary(self._run(found, at), found, at)
            limits = {"p95_ttft_ms": QUEUE_MS, **reading.limits}
            return values if all(values.get(name, 0.0) <= bound for name, bound in limits.items()) else None

        best = highest(probe, top)
        return {"capacity_rps": best[0], **best[1]} if best else {"capacity_rps": 0.0}

    def _goodput(self, served: Served, reading: ServingTask, found: Deployment, span_s: float) -> float:
        """Requests per second that keep every latency limit with the calibrated margin."""
        keep = np.isfinite(served.total_s)
        for name, limit in reading.limits.items():
            seconds = next((part for word, part in _parts(served).items() if word in name), None)
            if seconds is not None:
                margin = self._calibration.first_margin if "ttft" in name else self._calibration.margin
                keep &= seconds * (1.0 + margin) <= limit * (1e-3 if name.endswith("_ms") else 1.0)
        return float(keep.sum() / span_s * found.replicas)


def highest(probe: Callable[[float], dict[str, float] | None], top: float) -> tuple[float, dict[str, float]] | None:
    """The highest rate up to `top` for which `probe` has an answer, within a few per cent, and the answer; None where none has.

    >>> found = highest(lambda rate: {"x": rate} if rate <= 20 else None, 64.0)
    >>> found is not None and 18 < found[0] <= 20
    True
    """
    low, high = top / 2**PROBES, top
    best = None
    for _ in range(PROBES):
        rate = high if best is None and high == top else math.sqrt(low * high)
        values = probe(rate)
        if values is None:
            high = rate if rate < top else math.nextafter(top, 0.0)
        else:
            best, low = (rate, values), rate
            if rate == top:
                break
    return best


def _gaps(served: Served) -> dict[str, float]:
    """Percentiles of the time between two tokens, over tokens and not over requests."""
    if not len(served.gaps_s):
        return {}
    order = np.argsort(served.gaps_s)
    gaps, counts = served.gaps_s[order], np.cumsum(served.gap_tokens[order])
    found = {}
    for word, percent in PERCENTILES.items():
        place = len(gaps) - 1 if percent is None else min(len(gaps) - 1, int(np.searchsorted(counts, counts[-1] * percent / 100.0)))
        value = np.average(served.gaps_s, weights=served.gap_tokens) if percent is None else gaps[place]
        found[f"{word}_itl_ms"] = 1e3 * float(value)
    return found


def _parts(served: Served) -> Mapping[str, Any]:
    return {"ttft": served.first_token_s, "tpot": served.interval_s, "itl": served.interval_s, "e2e": served.total_s}


def _rate(metric: str) -> bool:
    return "throughput" in metric or "goodput" in metric or "capacity" in metric


__all__ = ["ServingModel"]
