"""What each changed knob contributes to the gain, where it was put back to the default alone and measured.

The part of a study called "simplify" measures a configuration (the incumbent) and variants of it with some knobs back at their default
(candidates) in the same rounds: a heat. The rounds of the final are one more, with the default itself. Two configurations of a heat that
differ in one knob measure what that knob contributes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from autoscout.analysis.gain import Gain, Noise, paired_gain, pooled_noise
from autoscout.analysis.importance import MIN_CONFIGS, observations, response
from autoscout.analysis.labels import differences
from autoscout.common.forest import Forest, ForestEncoder
from autoscout.core.config import Config
from autoscout.core.origin import Phase
from autoscout.core.seeds import stream
from autoscout.core.task import Direction, Task
from autoscout.core.trial import Measurement, Status, Trial

_TREES = 100
_MOST = 400  # configurations that the forest learns from, the newest; enough for a ranking, and quick


@dataclass(frozen=True, kw_only=True)
class Duel:
    """A configuration against the same with some or all changes back at their default, measured in the same rounds.

    Attributes:
        incumbent: With the changes.
        candidate: With fewer of them.
        knobs: What went back.
        eligible: Whether the candidate ran every time and keeps every limit.
        pairs: Objective of incumbent and candidate in each round in which both ran.
        noise: Of all configurations of the heat; None where it is not known.
    """

    incumbent: Config
    candidate: Config
    knobs: tuple[str, ...]
    eligible: bool
    pairs: tuple[tuple[float, float], ...]
    noise: Noise | None = None


@dataclass(frozen=True, kw_only=True)
class Contribution:
    """How many times worse the configuration would be with this knob at its default.

    Attributes:
        knob: Its name.
        ratio: Above 1: the change helps. None when nothing is known.
        low: Lower end of the interval.
        high: Upper end.
        source: "measured" or "unknown".
    """

    knob: str
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    source: str = "unknown"

    @property
    def is_measured(self) -> bool:
        return self.ratio is not None

    def __str__(self) -> str:
        if self.ratio is None:
            return "unknown"
        interval = f" [{self.low:.3f}, {self.high:.3f}]" if self.low is not None and self.high is not None else ""
        return f"{self.ratio:.3f}x{interval} {self.source}"

    @property
    def words(self) -> str:
        """For a sentence or a comment; empty where nothing was measured."""
        return f"contributes {self}" if self.is_measured else ""

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def duels(task: Task, trials: Iterable[Trial], default: Config) -> tuple[Duel, ...]:
    """Every pair of configurations that met in a heat and of which one has some of the other's changes, oldest heat first.

    Limits are those of `task`, so bind its guards first.
    """
    heats: dict[tuple[Phase, tuple[str, ...]], list[Trial]] = {}
    for trial in trials:
        origin = trial.proposal.origin
        if origin.phase in (Phase.SIMPLIFY, Phase.FINAL):
            heats.setdefault((origin.phase, origin.contenders), []).append(trial)
    pairs = []
    for members in heats.values():
        configs = dict.fromkeys(trial.config for trial in members)
        changed = {config: _changed(default, config) for config in configs}
        sides = {config: _side(task, [trial for trial in members if trial.config == config]) for config in configs}
        shared = set.intersection(*(set(side) for side in sides.values()))
        noise = pooled_noise([[side[number] for number in sorted(shared)] for side in sides.values()])
        for one in configs:
            smaller = [other for other in configs if changed[other].items() < changed[one].items()]
            pairs += [_duel(task, members, (one, other), (sides[one], sides[other]), noise) for other in smaller]
    return tuple(pairs)


def _changed(default: Config, config: Config) -> dict[str, object]:
    return {change.knob: (change.best_absent, change.best) for change in differences(default, config)}


def _side(task: Task, ran: Sequence[Trial]) -> dict[int, float]:
    values = {trial.proposal.origin.round: task.objective.value(trial.measurement) for trial in ran}
    return {number: value for number, value in values.items() if value is not None}


def _duel(
    task: Task,
    members: Sequence[Trial],
    configs: tuple[Config, Config],
    sides: tuple[dict[int, float], dict[int, float]],
    noise: Noise | None,
) -> Duel:
    incumbent, candidate = configs
    pairs = tuple((sides[0][number], sides[1][number]) for number in sorted(sides[0].keys() & sides[1].keys()))
    other = [trial.measurement for trial in members if trial.config == candidate]
    metrics = _medians([measurement.metrics for measurement in other if measurement.ok])
    keeps = task.objective.loss(Measurement(status=Status.OK, metrics=metrics)) < math.inf
    return Duel(
        incumbent=incumbent,
        candidate=candidate,
        knobs=tuple(change.knob for change in differences(candidate, incumbent)),
        eligible=keeps and all(measurement.ok for measurement in other),
        pairs=pairs,
        noise=noise,
    )


def compare(task: Task, pairs: Sequence[tuple[float, float]], noise: Noise | None = None, confidence: float = 0.95) -> Gain:
    """The gain of the second of each pair over the first."""
    one, other = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return paired_gain(one, other, minimize=task.objective.direction is Direction.MINIMIZE, confidence=confidence, noise=noise)


def _medians(measured: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = {name for metrics in measured for name in metrics}
    return {name: median(metrics[name] for metrics in measured if name in metrics) for name in names}


def effects(task: Task, trials: Sequence[Trial], default: Config, config: Config, seed: int = 0) -> dict[str, float]:
    """What a forest expects each changed knob of `config` to bring, above zero where it helps; empty with too few trials for a model.

    In units of the objective, of its logarithm where all values are positive: good for an order of knobs, and never shown as a number.

    Args:
        task: For objective and direction.
        trials: What the model learns from.
        default: Where the knobs would go back to.
        config: Whose knobs are judged.
        seed: For the model's random trees.
    """
    observed = dict(list(observations(task, trials).items())[-_MOST:])
    changed = [change.knob for change in differences(default, config)]
    if len(observed) < MIN_CONFIGS or not changed:
        return {}
    configs = list(observed)
    variants = [config, *(put_back(config, default, [knob]) for knob in changed)]
    encoder = ForestEncoder([*configs, *variants])
    target = response(list(observed.values()))
    forest = Forest(encoder.encode(configs), target, encoder.categorical, stream(seed, "report", "contributions"), trees=_TREES)
    opinions = forest.predict_each(encoder.encode(variants))
    steps = (opinions[:, 1:] - opinions[:, :1]) * (1.0 if task.objective.direction is Direction.MINIMIZE else -1.0)
    return {knob: float(step.mean()) for knob, step in zip(changed, steps.T, strict=True)}


def put_back(config: Config, default: Config, knobs: Sequence[str]) -> Config:
    """`config` with some knobs as in `default`, and without those that `default` does not hold; it need not be valid."""
    return config.without(*knobs).extend({name: default[name] for name in knobs if name in default})


def measured_gains(task: Task, trials: Iterable[Trial], default: Config, config: Config) -> dict[str, Gain]:
    """By how much `config` is better than without one of its changes, for each that a duel over that knob alone has measured.

    A duel of another configuration counts where that has all changes of `config`, and more.
    """
    measured = {}
    changed = _changed(default, config)
    for duel in sorted(duels(task, trials, default), key=lambda duel: (duel.incumbent == config, len(duel.pairs))):  # the last counts
        if len(duel.knobs) == 1 and duel.pairs and changed.items() <= _changed(default, duel.incumbent).items():
            measured[duel.knobs[0]] = compare(task, [(other, one) for one, other in duel.pairs], duel.noise)
    return measured


def contributions(
    task: Task, trials: Sequence[Trial], default: Config, config: Config, *, gain: Gain | None = None, exact: bool = False
) -> tuple[Contribution, ...]:
    """What each changed knob of `config` contributes: measured in a duel over that knob alone, else unknown.

    A model's guess has no place here: it would stand next to measurements of the same knob, and its interval spans a factor of ten.

    Args:
        task: For objective and direction.
        trials: All trials of the study.
        default: What the knobs are compared with.
        config: Whose changed knobs are judged.
        gain: Of `config` over the default: what its only change contributes, where there is but one.
        exact: Every answer is the same each time: two single measurements tell all.
    """
    measured = measured_gains(task, trials, default, config)
    changed = _changed(default, config)
    if gain is not None and len(changed) == 1:
        measured[next(iter(changed))] = gain
    results = []
    observed = observations(task, trials) if exact else {}
    for knob in changed:
        without = put_back(config, default, [knob])
        if knob not in measured and config in observed and without in observed:
            measured[knob] = compare(task, [(observed[without], observed[config])])
        measurement = measured.get(knob)
        if measurement is not None and measurement.ratio is not None:
            results.append(Contribution(knob=knob, ratio=measurement.ratio, low=measurement.low, high=measurement.high, source="measured"))
        else:
            results.append(Contribution(knob=knob))
    return tuple(results)


__all__ = ["Contribution", "Duel", "compare", "contributions", "duels", "effects", "measured_gains", "put_back"]
