"""NVIDIA's aiconfigurator as a simulator: measured kernels of serving engines, interpolated."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any, ClassVar

import numpy as np

from autoscout.core.config import Config
from autoscout.core.log import logger
from autoscout.core.protocols import Prediction, Simulator
from autoscout.core.task import Objective, Task
from autoscout.core.trial import Fidelity, Trial
from autoscout.simulators.serving.job import ENGINES
from autoscout.simulators.serving.read import KNOBS, ServingTask, SimulatedDeployment, read_deployment, read_serving_task
from autoscout.space import Choice, Space

SYSTEMS = {
    "A100-80": "a100_sxm",
    "H100": "h100_sxm",
    "H200": "h200_sxm",
    "B200": "b200_sxm",
    "B300": "b300_sxm",
    "GB200": "gb200",
    "GB300": "gb300",
    "L40S": "l40s",
    "RTX-PRO-6000": "rtx_pro_6000_server",
}
"""Our name of a GPU -> aiconfigurator's name of the system."""

log = logger(__name__)


@dataclass(frozen=True, kw_only=True)
class AiconfiguratorOptions:
    """Settings of the plug-in.

    Attributes:
        version: Engine version whose kernels are used; empty takes the newest that the package carries.
        adapt: Learn one scale factor per job from measured trials: its ranking is better than its absolute values.
    """

    version: str = ""
    adapt: bool = True


class AiconfiguratorModel(Simulator):
    """Predicts time to first token, time between tokens and throughput with the aiconfigurator package."""

    requires: ClassVar[tuple[str, ...]] = ("aiconfigurator",)
    extra: ClassVar[str] = "aiconfigurator"
    knobs: ClassVar[frozenset[str]] = frozenset(chain(*KNOBS.values()))

    def __init__(self, options: AiconfiguratorOptions | None = None) -> None:
        self.options = options or AiconfiguratorOptions()
        self._memory: dict[tuple[str, str], tuple[float, float] | None] = {}
        self._scale = 1.0

    @classmethod
    def example(cls) -> tuple[Space, Task]:
        """A model and a GPU that the package has data for."""
        workload = {"model": "Qwen/Qwen3-32B", "isl": 1024, "osl": 256, "concurrency": 16}
        task = Task(system="vllm", objective=Objective(metric="mean_tpot_ms"), workload=workload, hardware={"gpus": "8xH100"})
        return Space([Choice("tp", [2, 4, 8]), Choice("dp", [1, 2])], ["tp * dp <= gpus"], {"gpus": 8}), task

    def predict(self, configs: Sequence[Config], task: Task) -> Prediction:
        reading = read_serving_task(task)
        values = np.array([self._value(config, task, reading) for config in configs])
        rate = "throughput" in task.objective.metric
        value = values / self._scale if rate else values * self._scale
        answered = np.isfinite(values)
        return Prediction(
            value=np.where(answered, value, np.nan),
            spread=np.full(len(configs), 0.27),  # measured on the silicon sample, see docs/results/simulators.md
            feasible=answered.astype(float),
            known=answered.astype(float),
        )

    def fit(self, trials: Sequence[Trial], task: Task) -> None:
        self._scale = 1.0
        metric = task.objective.metric
        good = [
            trial
            for trial in trials
            if trial.ok and trial.measurement.fidelity is Fidelity.MEASURED and trial.measurement.metrics.get(metric, 0.0) > 0
        ]
        if not self.options.adapt or not good:
            return
        guesses = self.predict([trial.config for trial in good], task).value
        ratios = np.array([trial.measurement.metrics[metric] for trial in good]) / guesses
        ratios = ratios[np.isfinite(ratios)]
        if len(ratios):
            middle = float(np.exp(np.median(np.log(ratios))))
            self._scale = 1.0 / middle if "throughput" in metric else middle

    def _value(self, config: Config, task: Task, reading: ServingTask) -> float:
        key = (task.key, config.only(self.knobs).canonical)
        if key not in self._memory:
            self._memory[key] = self._estimate(read_deployment(config, reading), str(task.workload.get("model")), reading)
        answer = self._memory[key]
        if answer is None:
            return float("nan")
        first_ms, interval_ms = answer
        metric = task.objective.metric
        deployment = read_deployment(config, reading)
        total_ms = first_ms + interval_ms * (reading.output_tokens - 1)
        if "throughput" in metric:
            requests = float(deployment.job.batch) * deployment.replicas / (total_ms / 1e3)
            return requests if metric.startswith("request") else requests * reading.output_tokens
        return first_ms if "ttft" in metric else total_ms if "e2e" in metric else interval_ms

    def _estimate(self, deployment: SimulatedDeployment, model: str, reading: ServingTask) -> tuple[float, float] | None:
        """(time to first token, time between tokens) in ms; None where it has no data, knows no such model or finds no room."""
        system = SYSTEMS.get(reading.cluster.groups[0][0].name)
        if system is None or not deployment.fits:
            return None
        job, backend = deployment.job, ENGINES[reading.engine]
        experts = {"moe_tp_size": int(job.moe_tp), "moe_ep_size": int(job.moe_ep)} if job.experts else {}
        try:
            result = _estimator()(
                model,
                system,
                backend_name=backend,
                backend_version=self.options.version or _version(system, backend),
                isl=reading.input_tokens,
                osl=reading.output_tokens,
                batch_size=int(job.batch),
                tp_size=int(job.tp),
                pp_size=int(job.pp),
                attention_dp_size=int(job.attention_dp),
                **experts,
            )
        except Exception as error:  # missing databases, unknown models and shapes each raise another kind
            log.debug("aiconfigurator has no answer for %s on %s: %s", model, system, error)
            return None
        return float(result.ttft), float(result.tpot)


@cache
def _estimator() -> Callable[..., Any]:
    from aiconfigurator.cli.api import cli_estimate

    logging.getLogger("aiconfigurator").setLevel(logging.ERROR)
    estimator: Callable[..., Any] = cli_estimate
    return estimator


@cache
def _version(system: str, backend: str) -> str | None:
    """The newest engine version with data. Looking it up parses hundreds of files, which the package does in every call."""
    from aiconfigurator_core.sdk.perf_database import get_latest_database_version

    newest: str | None = get_latest_database_version(system=system, backend=backend)
    return newest


__all__ = ["AiconfiguratorModel"]
