"""Synthetic studies of every shape, for the tests of the report. Their truth is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoscout.analysis.result import StudyResult
from autoscout.core.config import Config
from autoscout.core.origin import Origin
from autoscout.core.task import Budget, Direction, Limit, Objective, Task
from autoscout.core.trial import Fidelity, Measurement, Proposal, Status, Trial
from autoscout.report.page import page
from autoscout.report.view import StudyView

METRIC = "output_throughput"


@dataclass(frozen=True)
class Note:
    name: str
    unit: str = ""
    help: str = ""
    warning: str = ""


KNOBS = (
    Note("threads", "", "threads that compute"),
    Note("batch", "tokens", "logical batch, 1 < 2"),
    Note("flash", "", "flash attention"),
    Note("tile", "", "tile of flash attention; only with flash"),
    Note("kv", "", "type of the KV cache"),
    Note("noise", "", "changes nothing"),
)
DEFAULT = Config(threads=4, batch=512, flash=False, kv="f16", noise=3)


def make_task(
    metric: str = METRIC, direction: Direction = Direction.MAXIMIZE, limits: Sequence[str] = (), trials: int | None = None
) -> Task:
    return Task(
        system="llamacpp",
        objective=Objective(metric=metric, direction=direction, limits=tuple(map(Limit.parse, limits))),
        workload={"prompt_tokens": 128, "model": "tiny.gguf"},
        hardware={"cores": 2, "cpu": "test"},
        software={"xllamacpp": "1.2.3"},
        budget=Budget(trials=trials),
    )


def make_trial(number: int, config: Config, value: float | None = None, **more: object) -> Trial:
    """A trial with one metric; `status`, `metrics`, `origin`, `repeat`, `fidelity`, `reason`, `log_tail`, ... override."""
    status = more.pop("status", Status.OK if value is not None else Status.CRASHED)
    metrics = dict(more.pop("metrics", {}))
    metric = more.pop("metric", METRIC)
    if value is not None:
        metrics[metric] = value
    proposal = Proposal(config=config, origin=Origin.from_json(more.pop("origin", {"by": "random"})), repeat=more.pop("repeat", 0))
    started_s = 1000.0 + 10.0 * number
    return Trial(
        proposal=proposal,
        measurement=Measurement(status=status, metrics=metrics, cost_s=8.0, **more),
        study="synthetic",
        number=number,
        batch=number,
        started_s=started_s,
        finished_s=started_s + 8.0,
    )


def truth(config: Config) -> float:
    """Throughput of the synthetic engine: threads and flash matter, kv a little, batch and noise not at all."""
    value = 40.0 * np.log2(1.0 + float(config["threads"]))
    value *= 1.3 + 0.03 * float(config.get("tile", 0)) if config["flash"] else 1.0
    return float(value * {"f16": 1.0, "q8_0": 1.06, "q4_0": 0.93}[str(config["kv"])])


def draw(rng: np.random.Generator) -> Config:
    values = {
        "threads": int(2 ** rng.integers(0, 5)),
        "batch": int(2 ** rng.integers(6, 12)),
        "flash": bool(rng.integers(2)),
        "kv": str(rng.choice(["f16", "q8_0", "q4_0"])),
        "noise": int(rng.integers(10)),
    }
    return Config(values).extend({"tile": int(rng.integers(1, 5))} if values["flash"] else {})


def make_study(
    size: int = 40, *, seed: int = 0, noise: float = 0.02, rounds: int = 5, finalists: int = 2, failures: float = 0.15
) -> list[Trial]:
    """A search with failures, and its final."""
    rng = np.random.default_rng(seed)
    first = truth(DEFAULT)
    trials = [
        make_trial(0, DEFAULT, first, origin={"by": "default"}, metrics={"p95_ttft_ms": 80.0}, samples={METRIC: (first, first * 1.01)})
    ]
    while len(trials) < size:
        config = draw(rng)
        number = len(trials)
        if rng.random() < failures:
            status = [Status.OOM_START, Status.TIMEOUT, Status.CRASHED][int(rng.integers(3))]
            reason = {"oom_start": f"failed to allocate {number * 100} MiB", "timeout": "passed 60 s", "crashed": "signal 11"}[status.value]
            trials.append(make_trial(number, config, status=status, reason=reason, log_tail=f"log of trial {number}\nlast line"))
        else:
            trials.append(
                make_trial(
                    number, config, truth(config) * float(np.exp(noise * rng.normal())), metrics={"p95_ttft_ms": 80.0 + 5 * (number % 4)}
                )
            )
    best = sorted((t for t in trials if t.ok and t.config != DEFAULT), key=lambda t: -t.measurement.metrics[METRIC])
    chosen = list(dict.fromkeys(t.config for t in best))[:finalists]
    for number in range(1, rounds + 1):
        drift = float(np.exp(0.05 * rng.normal()))
        for config in [DEFAULT, *chosen]:
            value = truth(config) * drift * float(np.exp(noise * rng.normal()))
            origin = {"phase": "final", "round": number}
            trials.append(make_trial(len(trials), config, value, origin=origin, repeat=number, metrics={"p95_ttft_ms": 80.0}))
    return trials


def result_of(task: Task, trials: Sequence[Trial], default: Config = DEFAULT, **facts: object) -> StudyResult:
    return StudyResult(task=task, trials=trials, default_config=default, **facts)  # type: ignore[arg-type]


def page_of(task: Task, trials: Sequence[Trial], default: Config = DEFAULT, **facts: object) -> str:
    return page(StudyView(result=result_of(task, trials, default, **facts)))


def simulated(number: int, config: Config, value: float) -> Trial:
    return make_trial(number, config, value, fidelity=Fidelity.SIMULATED)
