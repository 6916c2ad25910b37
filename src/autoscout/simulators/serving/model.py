"""Model of LLM serving: decode and prefill roofline, cache capacity, and the loop of continuous batching."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from autoscout.core import seeds
from autoscout.core.config import Config
from autoscout.core.protocols import Prediction, Simulator
from autoscout.core.task import Direction, Objective, Task
from autoscout.core.trial import Fidelity, Trial
from autoscout.simulators.serving.calibration import ServingCalibration, serving_calibration
from autoscout.simulators.serving.capacity import MOST_BUSY, busy_rate, highest
from autoscout.simulators.serving.cost import StepCost, step_cost
from autoscout.simulators.serving.disaggregated import ServingPool, serve_apart
from autoscout.simulators.serving.job import LENGTH_SPREAD
from autoscout.simulators.serving.loop import Bars, EngineLimits, Reach, Served, SimulatedRequest, serve
from autoscout.simulators.serving.read import (
    CAPACITY,
    KNOBS,
    SESSIONS,
    ServingTask,
    SimulatedDeployment,
    guesses_ahead,
    read_deployment,
    read_serving_task,
)
from autoscout.simulators.serving.step import cache_tokens, running_requests
from autoscout.space import Choice, Grid, Space
from autoscout.traffic.description import TrafficWindow
from autoscout.traffic.lengths import Even
from autoscout.traffic.together import together

PERCENTILES = {"mean": None, "median": 50.0, "p50": 50.0, "p75": 75.0, "p90": 90.0, "p95": 95.0, "p99": 99.0}

CLIENT_PROBES = 12  # rates that are tried for as many requests in flight as there are clients
PROBE_REQUESTS = 100  # that a replica is sent at each of them, at least
MOST_PROBE_REQUESTS = 4096  # that are simulated: pools of many replicas that share nothing would take minutes
EVEN, VARIED = 1.3, 2.0  # times the rate of a busy server that is tried at most: for lengths near their means, and for those of a traffic
_LONGER = re.compile(r"([a-z0-9]+)_tpot(\d+)_ms")
"""The time per token of answers of at least that number of tokens."""
QUEUE_MS = 10_000.0  # a wait for the first token that means a growing queue, where no limit is stricter


@dataclass(frozen=True, kw_only=True)
class ServingOptions:
    """Settings of the serving model.

    Attributes:
        calibration: File written by `autoscout calibrate`; empty takes the shipped one.
        adapt: Learn one scale factor per job from measured trials.
        seed: Names the arrivals and lengths that are drawn.
        length_spread: Lengths vary uniformly by this share around the task's. Equal ones (0) start and finish together ever after,
            which no real load does.
        factor: Of all times; what own studies on such GPUs say.
    """

    calibration: str = ""
    adapt: bool = True
    seed: int = 0
    length_spread: float = LENGTH_SPREAD
    factor: float = 1.0


class ServingModel(Simulator):
    """Predicts throughput, latency percentiles and goodput of an LLM server from model, GPUs, engine knobs and load."""

    needs_no_trials: ClassVar[bool] = True
    knobs: ClassVar[frozenset[str]] = frozenset(chain(*KNOBS.values()))

    def __init__(self, options: ServingOptions | None = None) -> None:
        self.options = options or ServingOptions()
        self._calibration: ServingCalibration = serving_calibration(self.options.calibration or None)
        self._seen: tuple[Task, ServingTask] | None = None
        self._memory: dict[tuple[str, str], dict[str, float]] = {}
        self._runs: dict[object, list[tuple[EngineLimits, Reach, dict[str, float]]]] = {}
        self._scale = self.options.factor

    @classmethod
    def example(cls) -> tuple[Space, Task]:
        """A small model under a light load."""
        workload = {"model": "llama-3.1-8b", "input_tokens": 256, "output_tokens": 32, "concurrency": 8, "requests": 16}
        objective = Objective(metric="output_throughput", direction=Direction.MAXIMIZE)
        task = Task(system="vllm", objective=objective, workload=workload, hardware={"gpus": "4xH100"})
        return Space([Choice("tensor_parallel_size", [1, 2, 4]), Grid("max_num_seqs", values=[4, 8, 64], default=64)]), task

    def predict(self, configs: Sequence[Config], task: Task) -> Prediction:
        metric = task.objective.metric
        answers = [self.metrics(config, task) for config in configs]
        scale = 1.0 / self._scale if _is_rate(metric) else self._scale
        value = np.array([answer.get(metric, np.nan) for answer in answers]) * scale
        feasible = np.array([answer["feasible"] for answer in answers])
        confidence = np.array([0.0 if guesses_ahead(config) else self._known(task) for config in configs])
        return Prediction(value=value, spread=self._spread(task) * (2.0 - confidence), feasible=feasible, known=confidence)

    def fit(self, trials: Sequence[Trial], task: Task) -> None:
        """Learn one scale of all times from measured trials."""
        self._scale = self.options.factor
        if not self.options.adapt:
            return
        metric = task.objective.metric
        ratios = []
        for trial in trials:
            value = trial.measurement.metrics.get(metric, 0.0)
            if trial.ok and trial.measurement.fidelity is Fidelity.MEASURED and value > 0 and not guesses_ahead(trial.config):
                guess = self.metrics(trial.config, task).get(metric, 0.0)
                if guess > 0:
                    ratios.append((guess / value) if _is_rate(metric) else (value / guess))
        if ratios:
            self._scale = float(np.exp(np.median(np.log(ratios)) * len(ratios) / (len(ratios) + 0.3)))

    def metrics(self, config: Config, task: Task) -> dict[str, float]:
        """Every metric of one config, and `feasible`: names as benchmark tools print them, times in ms."""
        reading = self._read(task)
        key = (task.key if self._seen is None else str(id(self._seen[0])), config.only(self.knobs).canonical)
        if key not in self._memory:
            if len(self._memory) > 20_000:
                self._memory.clear()
            self._memory[key] = self._simulate(read_deployment(config, reading), reading)
        return self._memory[key]

    def served(self, config: Config, task: Task) -> Served:
        """The requests of one replica, as clients would see them."""
        reading = self._read(task)
        return self._run(read_deployment(config, reading), reading)

    def busy_rate(self, config: Config, task: Task) -> float:
        """Requests per second with all hands busy; nan where the weights do not fit."""
        reading = self._read(task)
        deployment = read_deployment(config, reading)
        holds = deployment.fits and _room(deployment, reading) >= reading.input_tokens + reading.output_tokens
        return busy_rate(deployment, reading, self._calibration.constants) if holds else math.nan

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
        is_listed = any(gpu in name.lower().replace("_sxm", "") for name in self._calibration.gpus)
        return (1.0 if is_listed else 0.6) if self._calibration.rows else 0.25

    def _simulate(self, deployment: SimulatedDeployment, reading: ServingTask) -> dict[str, float]:
        capacity, need = _room(deployment, reading), reading.input_tokens + reading.output_tokens
        if not deployment.fits or capacity < need:
            return {"feasible": 0.0 if not deployment.fits or capacity <= 0 else 0.1}
        parts = [
            self._capacity(*at) if reading.capacity else self._summary(*at)
            for at in ([_at_window(deployment, reading, window) for window in reading.windows] or [(deployment, reading)])
        ]
        values = together(reading.windows, parts) if len(parts) > 1 else parts[0]
        room = np.log(capacity / need)
        return {**values, "feasible": float(1.0 / (1.0 + np.exp(-4.0 * room - 1.0))), "cache_tokens": capacity}

    def _summary(
        self, deployment: SimulatedDeployment, reading: ServingTask, bars_ms: Mapping[str, float] | None = None
    ) -> dict[str, float]:
        """The metrics of one run, none where it was seen to break one of `bars_ms`.

        Batching limits and room in the cache that an earlier run had not used up need no run of their own.
        """
        if deployment.prompts is not None:
            return self._summarised(self._run(deployment, reading), deployment, reading)
        _, limits = self._engine(deployment)
        window = reading.windows[0].name if reading.windows else ""
        key = (deployment.job, deployment.replicas, window, reading.request_rate, reading.concurrency, reading.requests)
        runs = self._runs.setdefault(key, [])
        for ran, reach, values in runs:
            if reach.same(ran, limits):
                return values
        served = self._run(deployment, reading, bars_ms)
        values = {} if served.failed else self._summarised(served, deployment, reading)
        runs.append((limits, served.reach, values))
        return values

    def _run(self, deployment: SimulatedDeployment, reading: ServingTask, bars_ms: Mapping[str, float] | None = None) -> Served:
        if deployment.prompts is not None:
            return self._run_apart(deployment, deployment.prompts, reading)
        cost, limits = self._engine(deployment)
        # the replicas share the load evenly: one of them represents all
        requests = self._requests(reading, max(8, -(-reading.requests // deployment.replicas)), deployment.replicas)
        concurrency = None if reading.request_rate is not None else max(1, -(-(reading.concurrency or 1) // deployment.replicas))
        return serve(requests, cost, limits, concurrency, _bars(bars_ms or {}, len(requests)))

    def _engine(self, deployment: SimulatedDeployment) -> tuple[StepCost, EngineLimits]:
        limits = replace(deployment.limits, cache_tokens=float(cache_tokens(deployment.job, deployment.memory_share)))
        return step_cost(deployment.job, self._calibration.constants), limits

    def _requests(self, reading: ServingTask, count: int, replicas: int) -> list[SimulatedRequest]:
        draw = seeds.stream(self.options.seed, "serving")
        window = reading.windows[0] if reading.windows else None
        if window is not None:
            even = Even(draw)
            lengths = np.array([window.draw(even) for _ in range(count)])
        else:
            spread = self.options.length_spread
            varied = draw.uniform(1.0 - spread, 1.0 + spread, size=(count, 2))
            lengths = np.maximum(1, (varied * (reading.input_tokens, reading.output_tokens)).astype(int))
        arrivals = np.zeros(count)
        if reading.request_rate is not None:
            shape = window.gap_shape if window is not None and reading.bursts else None
            mean_s = replicas / reading.request_rate
            gaps_s = draw.exponential(mean_s, size=count) if shape is None else draw.gamma(shape, mean_s / shape, size=count)
            arrivals = np.cumsum(gaps_s)
        cached = window.prefix_share or 0.0 if window is not None else 0.0
        return [
            SimulatedRequest(
                input_tokens=int(prompt), output_tokens=int(answer), arrival_s=float(arrival_s), cached_tokens=int(cached * prompt)
            )
            for (prompt, answer), arrival_s in zip(lengths, arrivals, strict=True)
        ]

    def _run_apart(self, deployment: SimulatedDeployment, prompts: SimulatedDeployment, reading: ServingTask) -> Served:
        """Prompts and answers on GPUs of their own; for clients in a closed loop, the rate that keeps as many of them waiting."""
        alike = deployment.alike
        pools = [
            ServingPool(cost=cost, limits=limits, replicas=one.replicas // alike)
            for one in (prompts, deployment)
            for cost, limits in [self._engine(one)]
        ]
        cache = deployment.job.kv_width * deployment.job.kv_bytes * deployment.job.attention_layers * reading.input_tokens
        travel_s = cache / (deployment.job.nic_rate * deployment.job.tp)

        def at(rate: float) -> Served:
            requests = self._requests(replace(reading, request_rate=rate), max(8, -(-reading.requests // alike)), alike)
            return serve_apart(requests, pools[0], pools[1], travel_s)

        if reading.request_rate is not None:
            return at(reading.request_rate)
        clients = float(reading.concurrency or 1)
        low, high = 1e-3, 1e4
        for _ in range(CLIENT_PROBES):
            rate = math.sqrt(low * high)
            total_s = at(rate).total_s
            waiting = rate * float(np.nanmean(total_s)) if np.isfinite(total_s).any() else math.inf
            low, high = (rate, high) if waiting <= clients else (low, rate)
        return at(low)

    def _summarised(self, served: Served, deployment: SimulatedDeployment, reading: ServingTask) -> dict[str, float]:
        values: dict[str, float] = {}
        times = {
            "ttft": served.first_token_s,
            "tpot": served.interval_s,
            "e2e": served.total_s,
            "e2el": served.total_s,
        }
        for name, seconds in times.items():
            good = seconds[np.isfinite(seconds)]
            if len(good):
                percents = np.percentile(good, [50.0 if percent is None else percent for percent in PERCENTILES.values()])
                for (word, percent), value in zip(PERCENTILES.items(), percents.tolist(), strict=True):
                    values[f"{word}_{name}_ms"] = 1e3 * (float(good.mean()) if percent is None else value)
        for name in reading.limits:
            if longer := _LONGER.fullmatch(name):
                word, least = longer[1], int(longer[2])
                good = served.interval_s[np.isfinite(served.interval_s) & (served.outputs >= least)]
                percent = PERCENTILES.get(word)
                values[name] = 1e3 * float(good.mean() if percent is None else np.percentile(good, percent)) if len(good) else 0.0
        values |= _gaps(served)
        finished = int(np.isfinite(served.total_s).sum())
        span_s = max(served.finished_s, 1e-9)
        copies = deployment.alike  # of what was simulated
        if reading.request_rate is not None:  # a short draw of arrivals may run ahead of the rate: no server answers more than it is asked
            span_s = max(span_s, len(served.total_s) * copies / reading.request_rate)
        values["output_throughput"] = served.output_tokens / span_s * copies
        values["request_throughput"] = finished / span_s * copies
        values["total_token_throughput"] = (served.output_tokens + finished * reading.input_tokens) / span_s * copies
        gpus = sum(one.job.tp * one.job.pp * one.replicas for one in (deployment, deployment.prompts) if one is not None)
        values["output_throughput_per_gpu"] = values["output_throughput"] / max(1.0, gpus)
        values["preemptions"] = float(served.preemptions)
        on_time = self._keeping(served, reading)
        values["request_goodput"] = values["goodput"] = float(on_time.sum() / span_s * copies)
        values["goodput_share"] = float(on_time.mean())
        return values

    def _capacity(self, deployment: SimulatedDeployment, reading: ServingTask) -> dict[str, float]:
        """The highest rate that keeps every limit, and the metrics there; none at all where no rate does."""
        top = (VARIED if reading.windows else EVEN) * busy_rate(deployment, reading, self._calibration.constants)
        # A growing queue must have time to show: twice as many requests as are ever in flight, in powers of two to share runs.
        busiest = replace(deployment.job, batch=float(min(deployment.limits.max_requests, MOST_BUSY)))
        flight = float(running_requests(busiest, deployment.memory_share))
        least = 2 ** math.ceil(math.log2(max(PROBE_REQUESTS, 2.0 * flight) * deployment.replicas))
        least = min(least, MOST_PROBE_REQUESTS * deployment.alike)

        limits = {"p95_ttft_ms": QUEUE_MS, **reading.limits}

        def probe(rate: float) -> dict[str, float] | None:
            at = replace(reading, request_rate=rate, concurrency=None, requests=max(least, reading.requests))
            values = self._summary(deployment, at, limits)
            return values if all(values.get(name, math.inf) <= bound for name, bound in limits.items()) else None

        best = highest(probe, top) if top > 0.0 else None
        session = reading.windows[0].session if reading.windows else reading.session
        rate, values = best or (0.0, {})
        under_way = session.under_way(rate, values.get("mean_e2el_ms", 0.0) / 1e3)
        return {CAPACITY: rate, **({SESSIONS: under_way} if session.turns > 1 else {}), **values}

    def _keeping(self, served: Served, reading: ServingTask) -> NDArray[np.bool_]:
        """Requests that keep every latency limit with the calibrated margin."""
        keep = np.isfinite(served.total_s)
        for name, limit in reading.limits.items():
            seconds = next((part for word, part in _parts(served).items() if word in name), None)
            if seconds is not None:
                margin = self._calibration.first_margin if "ttft" in name else self._calibration.margin
                bound_s = limit * (1e-3 if name.endswith("_ms") else 1.0)
                longer = _LONGER.fullmatch(name)
                counts = served.outputs >= (int(longer[2]) if longer else 0)
                keep &= ~(counts & (seconds * (1.0 + margin) > bound_s))  # an answer of one token has no interval
        return keep


def _at_window(deployment: SimulatedDeployment, reading: ServingTask, window: TrafficWindow) -> tuple[SimulatedDeployment, ServingTask]:
    """With the mean lengths of a window in the place of those of all; of a prompt that was seen before only the rest is work."""
    prompt, answer = max(1, round(window.mean_input)), max(1, round(window.mean_output))
    work = max(1.0, prompt * (1.0 - (window.prefix_share or 0.0)))
    job = replace(deployment.job, input_tokens=work, output_tokens=float(answer))
    return replace(deployment, job=job), replace(reading, windows=(window,), input_tokens=prompt, output_tokens=answer)


def _room(deployment: SimulatedDeployment, reading: ServingTask) -> float:
    """Tokens of cache of a replica; 0 where those that compute prompts cannot hold one."""
    if deployment.prompts is not None and cache_tokens(deployment.prompts.job, deployment.prompts.memory_share) < reading.input_tokens:
        return 0.0
    return float(cache_tokens(deployment.job, deployment.memory_share))


def _bars(limits_ms: Mapping[str, float], count: int) -> Bars:
    """Limits of percentiles over `count` requests, as how many of them may be late."""
    bars: dict[str, Any] = {}
    for name, bound in sorted(limits_ms.items(), key=lambda limit: -limit[1]):
        word, _, rest = name.partition("_")
        percent = PERCENTILES.get(word)
        kind = {"ttft_ms": "first", "tpot_ms": "interval"}.get(rest)
        if percent is not None and kind:
            bars |= {f"{kind}_s": bound / 1e3, f"late_{kind}": count - math.floor((count - 1) * percent / 100.0) - 1}
    return Bars(**bars)


def _gaps(served: Served) -> dict[str, float]:
    """Percentiles of the time between two tokens, over tokens and not over requests."""
    if not len(served.gaps_s):
        return {}
    order = np.argsort(served.gaps_s)
    gaps, counts = served.gaps_s[order], np.cumsum(served.gap_tokens[order])
    percentiles = {}
    for word, percent in PERCENTILES.items():
        index = len(gaps) - 1 if percent is None else min(len(gaps) - 1, int(np.searchsorted(counts, counts[-1] * percent / 100.0)))
        value = np.average(served.gaps_s, weights=served.gap_tokens) if percent is None else gaps[index]
        percentiles[f"{word}_itl_ms"] = 1e3 * float(value)
    return percentiles


def _parts(served: Served) -> Mapping[str, Any]:
    return {"ttft": served.first_token_s, "tpot": served.interval_s, "itl": served.interval_s, "e2e": served.total_s}


def _is_rate(metric: str) -> bool:
    return "throughput" in metric or "goodput" in metric or "capacity" in metric


__all__ = ["ServingModel"]
