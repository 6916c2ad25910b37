"""From the default to the best, one knob at a time: which changes bring the gain, and which could be left alone.

Greedy ablation (Fawcett and Hoos 2016): of the changes still to be made, make the one that helps most. A step whose
configuration was really measured shows the measurement; every other step is a prediction of a model and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from autoscout.analysis.gain import paired_gain
from autoscout.analysis.importance import MIN_CONFIGS, observations, response
from autoscout.analysis.labels import differences
from autoscout.common.forest import Forest, ForestEncoder
from autoscout.common.text import show
from autoscout.core.config import Config
from autoscout.core.seeds import stream
from autoscout.core.task import Direction, Task
from autoscout.core.trial import Trial

_MOST_FIT = 400
"""Configurations that the model learns from."""
_TREES = 100


@dataclass(frozen=True, kw_only=True)
class AblationStep:
    """One change on the way from the default to the best.

    Attributes:
        knobs: What changes here; several only where no single change is valid.
        change: The change in words.
        value: Objective after it.
        gain: Ratio over the step before (above 1 is better).
        total: Ratio over the default.
        source: "measured" or "predicted".
    """

    knobs: tuple[str, ...]
    change: str
    value: float
    gain: float | None
    total: float | None
    source: str

    def to_json(self) -> dict[str, Any]:
        """The order alone: the number of a knob is its contribution, and a second one from single trials or a model would differ."""
        return {"knobs": list(self.knobs), "change": self.change}


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """The path, and why there is none."""

    steps: tuple[AblationStep, ...]
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"steps": [step.to_json() for step in self.steps], "note": self.note}


def ablate(
    task: Task,
    trials: Sequence[Trial],
    default: Config,
    best: Config,
    *,
    check: Callable[[Config], list[str]] | None = None,
    seed: int = 0,
) -> Ablation:
    """Walk from `default` to `best`.

    Args:
        task: For objective and direction.
        trials: All trials of the study.
        default: Where the walk starts; must have been measured.
        best: Where it ends; must have been measured.
        check: `space.check`, which keeps the walk on valid configurations; without it all are taken to be valid.
        seed: For the model's random trees.
    """
    observed = observations(task, trials)
    if default == best:
        return Ablation(steps=(), note="the default is the best configuration")
    missing = [name for name, config in (("default", default), ("best configuration", best)) if config not in observed]
    if missing:
        return Ablation(steps=(), note=f"no measurement of the {' and of the '.join(missing)}")
    remaining = [change.knob for change in differences(default, best)]
    if len(observed) < MIN_CONFIGS and len(remaining) > 1:
        return Ablation(steps=(), note=f"too few trials for a model: {len(observed)} configurations ran, {MIN_CONFIGS} are needed")
    return Ablation(steps=_walk(task, observed, default, best, remaining, check, seed))


def _walk(
    task: Task,
    observed: Mapping[Config, float],
    default: Config,
    best: Config,
    remaining: list[str],
    check: Callable[[Config], list[str]] | None,
    seed: int,
) -> tuple[AblationStep, ...]:
    value_of = _values(observed, default, best, seed)
    minimize = task.objective.direction is Direction.MINIMIZE
    steps: list[AblationStep] = []
    total = len(remaining)
    here, start = default, observed[default]
    before = start
    while remaining:
        candidates = _candidates(here, best, remaining, check)
        scored = [(knobs, config, *value_of(config, 1.0 - (len(remaining) - len(knobs)) / total)) for knobs, config in candidates]
        knobs, here, value, source = (min if minimize else max)(scored, key=lambda item: item[2])
        steps.append(
            AblationStep(
                knobs=knobs,
                change=", ".join(f"{name} = {show(best[name])}" if name in best else f"{name} not used" for name in knobs),
                value=value,
                gain=paired_gain([before], [value], minimize=minimize).ratio,
                total=paired_gain([start], [value], minimize=minimize).ratio,
                source=source,
            )
        )
        remaining = [name for name in remaining if name not in knobs]
        before = value
    return tuple(steps)


def _values(observed: Mapping[Config, float], default: Config, best: Config, seed: int) -> Callable[[Config, float], tuple[float, str]]:
    """The measured value of a configuration where there is one, else the model's, with its source.

    The model is shifted so that it meets the measurements at both ends of the walk, in proportion to the part of the
    way already gone; otherwise the last step would be blamed for all that the model does not know about the best.
    """
    configs = list(observed)
    if len(configs) > _MOST_FIT:
        rows = stream(seed, "report", "ablation", "sample").choice(len(configs), _MOST_FIT, replace=False)
        configs = list(dict.fromkeys([*(configs[row] for row in sorted(rows)), default, best]))
    values = [observed[config] for config in configs]
    encoder = ForestEncoder(configs)
    target = response(values)
    logs = min(values) > 0
    forest = Forest(encoder.encode(configs), target, encoder.categorical, stream(seed, "report", "ablation"), trees=_TREES)
    ends = forest.predict(encoder.encode([default, best]))
    misses = [target[configs.index(config)] - opinion for config, opinion in zip((default, best), ends, strict=True)]

    def value_of(config: Config, gone: float) -> tuple[float, str]:
        if config in observed:
            return observed[config], "measured"
        opinion = float(forest.predict(encoder.encode([config]))[0]) + (1.0 - gone) * misses[0] + gone * misses[1]
        return (float(np.exp(opinion)) if logs else float(opinion)), "predicted"

    return value_of


def _candidates(
    here: Config, best: Config, remaining: Sequence[str], check: Callable[[Config], list[str]] | None
) -> list[tuple[tuple[str, ...], Config]]:
    """The smallest sets of changes that lead to a valid configuration; at worst all of them, which lead to the best."""
    for size in (1, 2, 3):
        if size >= len(remaining):
            break
        sets = [(knobs, _changed(here, best, knobs)) for knobs in combinations(remaining, size)]
        valid = [(knobs, config) for knobs, config in sets if check is None or not check(config)]
        if valid:
            return valid
    return [(tuple(remaining), best)]


def _changed(here: Config, best: Config, knobs: Sequence[str]) -> Config:
    """`here` with some knobs set as in `best`; a knob that `best` does not hold is dropped."""
    return here.without(*knobs).extend({name: best[name] for name in knobs if name in best})
