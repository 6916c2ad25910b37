"""The curve of a server: what it gives each user and all of them together, over loads from light to heavy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from autoscout.common.stats import standard_error, student_quantile
from autoscout.core.config import Config
from autoscout.core.origin import By, Origin
from autoscout.core.protocols import Evaluator
from autoscout.core.trial import Measurement, Proposal
from autoscout.study.assemble import build_executor, build_profiler
from autoscout.study.campaign import Campaign, GoalBlock
from autoscout.study.setup import Setup, prepare

CERTAIN = 0.975  # quantile of the two ends of an interval of 95 %
DEGREES = {"tp": "tensor_parallel_size", "ep": "enable_expert_parallel"}
"""Word of InferenceX -> our knob."""
UP, ACROSS = "output_throughput", "median_tpot_ms"


@dataclass(frozen=True, kw_only=True)
class CurveLoad:
    """One load of the curve: requests in flight, or requests a second."""

    concurrency: int = 0
    rate: float = 0.0

    @property
    def fields(self) -> dict[str, Any]:
        return {"concurrency": self.concurrency, "request_rate": 0.0} if self.concurrency else {"request_rate": self.rate, "concurrency": 0}

    def __str__(self) -> str:
        return f"{self.concurrency} at once" if self.concurrency else f"{self.rate:g} requests/s"


@dataclass(frozen=True, kw_only=True)
class MeasuredPoint:
    """What one configuration came to under one load.

    Attributes:
        name: Of the configuration.
        config: It.
        load: What was asked.
        gpus: That it takes; 1 on a machine without.
        task: What else the result depends on, as fields.
        measurements: One for each round.
    """

    name: str
    config: Config
    load: CurveLoad
    gpus: int
    task: Mapping[str, Any]
    measurements: tuple[Measurement, ...]

    def values(self, metric: str) -> list[float]:
        return [one.metrics[metric] for one in self.measurements if one.ok and metric in one.metrics]

    def interval(self, metric: str, share: float = 1.0) -> tuple[float, float, float] | None:
        """Geometric mean and the two ends of its 95 % interval, which is without end for a single measurement; None without any."""
        logs = [math.log(value * share) for value in self.values(metric) if value > 0]
        if not logs:
            return None
        if len(logs) < 2:
            return math.exp(logs[0]), 0.0, math.inf
        half = student_quantile(CERTAIN, len(logs) - 1) * standard_error(logs)
        return math.exp(fmean(logs)), math.exp(fmean(logs) - half), math.exp(min(700.0, fmean(logs) + half))

    @property
    def per_gpu(self) -> tuple[float, float, float] | None:
        """Generated tokens per second and GPU."""
        return self.interval(UP, 1.0 / self.gpus)

    @property
    def per_user(self) -> float | None:
        """Generated tokens per second that one user sees."""
        interval = self.interval(ACROSS)
        return 1000.0 / interval[0] if interval and interval[0] > 0 else None

    def to_json(self) -> dict[str, Any]:
        """A row as InferenceX publishes them: times in seconds, `intvty` for tokens per second and user."""
        metrics = {name: fmean(self.values(name)) for one in self.measurements if one.ok for name in one.metrics}
        row: dict[str, Any] = {
            "name": self.name,
            **self.task,
            "conc": self.load.concurrency or None,
            "request_rate": self.load.rate or None,
            "sessions": metrics.get("sessions_under_way"),
            "tput_per_gpu": metrics.get("total_token_throughput", math.nan) / self.gpus,
            "output_tput_per_gpu": metrics.get(UP, math.nan) / self.gpus,
        }
        for name, value in metrics.items():
            if name.endswith("_ms"):
                row[name.removesuffix("_ms")] = value / 1000.0
            if "tpot" in name and value > 0:
                row[name.removesuffix("_ms").replace("tpot", "intvty")] = 1000.0 / value
        ends = self.per_gpu
        bounded = ends is not None and math.isfinite(ends[2])
        row["output_tput_per_gpu_interval"] = [ends[1], ends[2]] if ends is not None and bounded else None
        row["rounds"], row["failed"] = len(self.measurements), [one.reason for one in self.measurements if not one.ok]
        row["config"] = self.config.to_json()
        return {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in row.items()}


def measure_curve(
    campaign: Campaign,
    configs: Mapping[str, Mapping[str, Any] | None],
    loads: Sequence[CurveLoad],
    rounds: int,
    folder: Path,
    attach: Callable[[Evaluator], Any],
    tell: Callable[[str], None],
) -> list[MeasuredPoint]:
    """Measure every configuration under every load, in rounds, so that a machine that slows down slows all of them.

    Args:
        campaign: System, workload and machine; its goal and its loads are not used.
        configs: Name -> knobs that differ from the default, None for the pinned default itself.
        loads: From light to heavy.
        rounds: How often each is measured.
        folder: For the folders of the trials.
        attach: Told of each evaluator; what it returns says when to stop.
        tell: Told what is measured.
    """
    setups = [prepare(_at(campaign, load)) for load in loads]
    answers: dict[tuple[str, int], list[Measurement]] = {(name, row): [] for name in configs for row in range(len(loads))}
    for turn in range(rounds):
        for row, setup in enumerate(setups):
            executor = build_executor(setup, folder / f"load-{row}")
            try:
                evaluator = build_profiler(setup, executor)
                stopping = attach(evaluator)
                for name, knobs in configs.items():
                    if stopping.is_set():
                        break
                    tell(f"round {turn + 1} of {rounds}: {name}, {loads[row]}")
                    proposal = Proposal(config=_config(setup, knobs), origin=Origin(by=By.PROFILE), repeat=turn)
                    answers[name, row] += evaluator.evaluate([proposal])
            finally:
                executor.close()
            if stopping.is_set():
                break
    points = {key: point for key, point in answers.items() if point}
    return [_point(name, _config(setups[row], configs[name]), loads[row], setups[row], point) for (name, row), point in points.items()]


def _at(campaign: Campaign, load: CurveLoad) -> Campaign:
    """The campaign at one load, for a look at what it gives."""
    workload = {name: value for name, value in campaign.workload.items() if name not in ("requests", "arrival")}
    return campaign.model_copy(update={"workload": {**workload, **load.fields}, "goal": GoalBlock(metric=UP), "baseline": {}, "first": ()})


def _config(setup: Setup, knobs: Mapping[str, Any] | None) -> Config:
    return setup.default if knobs is None else setup.space.project({**setup.default, **knobs}, Config(knobs))


def _point(name: str, config: Config, load: CurveLoad, setup: Setup, found: Sequence[Measurement]) -> MeasuredPoint:
    task, gpus = setup.task, setup.backend.render(config, setup.task, 0).resources.gpus
    degrees = {
        short: config.get(long) for short, long in (("tp", "tensor_parallel_size"), ("ep", "enable_expert_parallel")) if long in config
    }
    about = {
        "hw": str(task.hardware.get("gpu") or f"{task.hardware.get('cores', '?')} CPU cores"),
        "framework": task.system,
        "model": str(task.workload.get("model", "")),
        "isl": task.workload.get("input_tokens"),
        "osl": task.workload.get("output_tokens"),
        **{short: int(value or 1) for short, value in degrees.items()},
        "gpus": gpus,
    }
    return MeasuredPoint(name=name, config=config, load=load, gpus=max(1, gpus), task=about, measurements=tuple(found))


__all__ = ["CurveLoad", "MeasuredPoint", "measure_curve"]
