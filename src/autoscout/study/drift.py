"""Whether what users ask today is still what a study was tuned on, and whether a new study would pay: predicted, and nothing is changed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from itertools import islice, product
from typing import Any

import numpy as np

from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.task import Direction, Task
from autoscout.simulators.serving.model import ServingModel, ServingOptions
from autoscout.simulators.serving.read import KNOBS, SPECULATION
from autoscout.simulators.serving.read import read_serving_task as read_task
from autoscout.space import Space
from autoscout.study.setup import Setup
from autoscout.traffic.description import Traffic, TrafficWindow
from autoscout.traffic.lengths import TokenLengths
from autoscout.traffic.typical import distance

SIMULATED = ("vllm", "sglang")
"""Systems that the serving simulator knows."""
TRIED = ("max_requests", "max_step_tokens", "tp", "pp", "dp", "chunked", "mixed", "kept_share")
"""What a new study could change and the simulator knows, by its own words; nothing that changes answers."""
BATCHING = ("max_requests", "max_step_tokens")
"""Those of them whose effect only a simulation shows; the others are chosen by the closed form first."""
MOST_TRIED = 600  # combinations that are looked at
LAYOUTS = 2  # besides the one that the study hands over
FEW = 7  # values of a knob of batching that are simulated
SEEDS = (1, 2, 3)  # draws by which the one that looks best is compared again: a maximum of noisy numbers flatters
ALIKE = 0.08  # distance of lengths that two draws of 400 requests of one service stay below in 19 cases of 20


class Pays(StrEnum):
    """Whether a new study would pay."""

    NO = "no"
    YES = "yes"
    UNKNOWN = "cannot tell"


@dataclass(frozen=True, kw_only=True)
class Drift:
    """What has changed, and what it means.

    Attributes:
        pays: Whether a new study would.
        why: In words.
        gain: How many times better the best configuration is predicted to be than what the study hands over; None where that is not known.
        error: Standard deviation of the error to expect of it, as a share.
        distance: Between the lengths of then and now: the mean logarithm of the ratios of means and quantiles.
        then: Mean prompt, mean answer, requests a second.
        now: Likewise.
        config: The configuration that would gain.
    """

    pays: Pays
    why: str
    gain: float | None = None
    error: float | None = None
    distance: float = 0.0
    then: Mapping[str, float | None]
    now: Mapping[str, float | None]
    config: Mapping[str, Any] | None = None

    @property
    def line(self) -> str:
        """All of it in one line."""
        parts = [f"{_one(self.then[name])} -> {_one(self.now[name])} {words}" for name, words in _WORDS.items()]
        return f"{self.pays.value}: {self.why}; {', '.join(parts)}"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "pays": self.pays.value, "fidelity": "simulated", "line": self.line}


_WORDS = {"input_tokens": "tokens of a prompt", "output_tokens": "of an answer", "rate": "requests/s"}


def drift_of(setup: Setup, answer: Mapping[str, Any], now: Traffic) -> Drift:
    """Compare today's traffic with that of a study.

    Args:
        setup: The study.
        answer: The configuration that it hands over.
        now: What users ask today.
    """
    then = _asked(setup.task)
    apart = max(min(distance(window, one) for one in then.judged) for window in now.judged)
    about: dict[str, Any] = {"distance": apart, "then": _about(then), "now": _about(now)}
    if apart < ALIKE:
        return Drift(pays=Pays.NO, why=f"lengths are as they were (distance {apart:.2f})", **about)
    if reason := no_ground(setup, answer):
        return Drift(pays=Pays.UNKNOWN, why=f"lengths have changed (distance {apart:.2f}), and {reason}", **about)
    task = replace(setup.task, workload={**setup.task.workload, "workload": "traffic", **now.to_load()})
    mine = Config(answer)
    best, gain = _best(setup.space, mine, task)
    error = spread_of(task)
    if gain is None:
        return Drift(pays=Pays.UNKNOWN, why="the simulator finds no rate that keeps the limits", **about)
    figures: dict[str, Any] = {"gain": gain, "error": error, **about}
    if gain > 1.0 + error:
        changed = {name: value for name, value in best.items() if value != mine.get(name)}
        words = ", ".join(f"{name}={value}" for name, value in changed.items())
        why = f"a new study is predicted to gain {gain - 1:.0%} (simulated, error {error:.0%}), by {words}"
        return Drift(pays=Pays.YES, why=why, config=best.to_json(), **figures)
    why = f"a new study is predicted to gain {max(0.0, gain - 1):.0%} (simulated), less than the error of {error:.0%}"
    return Drift(pays=Pays.NO, why=why, **figures)


def no_ground(setup: Setup, answer: Mapping[str, Any]) -> str:
    """Why the simulator cannot say how configurations of this study differ; empty where it can."""
    if reason := unmodelled(setup, answer):
        return reason
    if not math.isfinite(_value(ServingModel(), Config(answer), setup.task) or math.nan):
        return f"the simulator does not predict {setup.task.objective.metric}"
    return ""


def unmodelled(setup: Setup, answer: Mapping[str, Any]) -> str:
    """What the simulator does not know, or knows badly, of this study and configuration; empty where there is nothing."""
    if setup.task.system not in SIMULATED:
        return f"no simulator knows {setup.task.system}"
    try:
        reading = read_task(setup.task)
    except ConfigError as error:
        return f"the simulator does not know the task: {error.faults[0]}"
    if reading.shape.experts:
        return "layouts of a mixture of experts are where the simulator errs most"
    if any(answer.get(name) for name in KNOBS["prefill_gpus"]):
        return "prompts and answers are computed on GPUs of their own, which no measurement has confirmed"
    if any(answer.get(name) not in (None, "none") for name in SPECULATION):
        return "the simulator does not know speculative decoding"
    return ""


def _best(space: Space, mine: Config, task: Task) -> tuple[Config, float | None]:
    """The configuration that is predicted to be best today, and its gain over what the study hands over."""
    aliases = {alias for word in TRIED for alias in KNOBS[word]}
    names = [name for name in space.knobs if name in aliases]
    choices = {name: list(dict.fromkeys([mine.get(name), *space.knobs[name].values])) for name in names}
    simulator = ServingModel()
    batching = [name for name in names if any(name in KNOBS[word] for word in BATCHING)]
    layouts = _made(space, mine, {name: choices[name] for name in names if name not in batching})
    rates = np.nan_to_num([simulator.busy_rate(config, task) for config in layouts], nan=0.0)
    best = [layouts[row] for row in np.argsort(-rates, kind="stable")[:LAYOUTS].tolist() if rates[row] > 0]
    steps = {name: _few(choices[name]) for name in batching}
    likely = [config for layout in dict.fromkeys([mine, *best]) for config in _made(space, layout, steps)]
    values = {config: value for config in dict.fromkeys([mine, *likely]) if (value := _value(simulator, config, task))}
    if not values:
        return mine, None
    sign = 1.0 if task.objective.direction is Direction.MAXIMIZE else -1.0
    first = max(values, key=lambda config: (sign * values[config], config == mine))
    again = [
        (_value(model, first, task), _value(model, mine, task)) for model in (ServingModel(ServingOptions(seed=seed)) for seed in SEEDS)
    ]
    logs = [sign * math.log(one / other) for one, other in again if one and other]
    if mine not in values:  # it keeps the limits at no rate
        return first, math.inf
    return first, math.exp(float(np.mean(logs))) if logs else None


def _made(space: Space, base: Config, choices: Mapping[str, Sequence[Any]]) -> list[Config]:
    """The valid configurations that differ from one by these choices."""
    rows = islice(product(*choices.values()), MOST_TRIED)
    configs = (space.project({**base, **dict(zip(choices, row, strict=True))}) for row in rows)
    return [config for config in dict.fromkeys(configs) if not space.check(config)]


def _few(values: Sequence[Any]) -> list[Any]:
    """A few of many values, from the smallest to the largest; the first of all is kept."""
    ordered = sorted((value for value in values if isinstance(value, int)), key=float)
    places = np.unique(np.linspace(0, len(ordered) - 1, min(FEW, len(ordered))).round().astype(int)).tolist()
    return list(dict.fromkeys([values[0], *(ordered[place] for place in places)]))


def _value(simulator: ServingModel, config: Config, task: Task) -> float | None:
    """What the goal of the study comes to; None where the configuration does not fit, or keeps the limits at no rate."""
    values = simulator.metrics(config, task)
    value = values.get(task.objective.metric)
    return value if value and math.isfinite(value) and values.get("feasible", 0.0) >= 0.5 else None


def spread_of(task: Task) -> float:
    """Error to expect of a ratio of two predictions."""
    config = Config({})
    return float(ServingModel().predict([config], task).spread[0])


def _asked(task: Task) -> Traffic:
    """What a study was tuned on; lengths around two means where it had no traffic."""
    workload = task.workload
    if data := workload.get("traffic"):
        return Traffic.from_json(data)
    spans = []
    for kind in ("input", "output"):
        mean, spread = float(workload.get(f"{kind}_tokens", 1)), float(workload.get(f"{kind}_spread", 0))
        spans.append(TokenLengths(bins=((max(0.0, mean - spread), mean + spread, 1.0),)))
    window = TrafficWindow(name="all", requests=1.0, inputs=spans[0], outputs=spans[1])
    return Traffic(source="the lengths of the study", windows=(window,))


def _about(traffic: Traffic) -> dict[str, float | None]:
    inputs, outputs = traffic.mean_lengths
    rates = [window.rate for window in traffic.judged if window.rate is not None]
    return {"input_tokens": float(inputs), "output_tokens": float(outputs), "rate": float(np.mean(rates)) if rates else None}


def _one(value: float | None) -> str:
    return "?" if value is None else f"{value:.4g}"


__all__ = ["Drift", "Pays", "drift_of", "no_ground", "spread_of", "unmodelled"]
