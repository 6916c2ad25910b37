"""What each changed knob contributes to the gain, or to a limit, where that was measured.

The part of a study called "simplify" measures a configuration in pairs that tell what each of its changes does (`analysis/screen.py`).
In the rounds of the final, two configurations that differ in one knob measure what that knob contributes. Nothing else counts: a model's
guess has no place next to measurements of the same knob.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from autoscout.analysis.gain import Gain, Noise, paired_gain, pooled_noise
from autoscout.analysis.importance import MIN_CONFIGS, observations, response
from autoscout.analysis.labels import differences
from autoscout.analysis.screen import Screen, changes_of
from autoscout.common.forest import Forest, ForestEncoder
from autoscout.core.config import Config
from autoscout.core.origin import Phase
from autoscout.core.seeds import stream
from autoscout.core.task import Direction, Limit, Task
from autoscout.core.trial import Fidelity, Trial

_TREES = 100
_MOST = 400  # configurations that the forest learns from, the newest; enough for a ranking, and quick


@dataclass(frozen=True, kw_only=True)
class Duel:
    """A configuration against the same with some or all changes back at their default, measured in the same rounds of a final.

    Attributes:
        incumbent: With the changes.
        candidate: With fewer of them.
        knobs: What went back.
        pairs: A metric of incumbent and candidate in each round in which both ran.
        noise: Of all configurations of the final; None where it is not known.
    """

    incumbent: Config
    candidate: Config
    knobs: tuple[str, ...]
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
        source: "measured", "simulated" where nothing but a simulator has answered, or "unknown".
        metric: Of a limit that the default breaks and this configuration keeps; empty for the goal.
    """

    knob: str
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    source: str = "unknown"
    metric: str = ""

    @property
    def is_measured(self) -> bool:
        return self.ratio is not None

    def __str__(self) -> str:
        if self.ratio is None:
            return "unknown"
        interval = f" [{self.low:.3f}, {self.high:.3f}]" if self.low is not None and self.high is not None else ""
        size = f"{self.ratio:.3f}x{interval}"
        return f"{self.metric} {size} better, {self.source}" if self.metric else f"{size} {self.source}"

    @property
    def words(self) -> str:
        """For a sentence or a comment; empty where nothing was measured."""
        return "" if not self.is_measured else str(self) if self.metric else f"contributes {self}"

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def shown_contributions(contributions: Iterable[Contribution]) -> dict[str, str]:
    """By knob what is shown of its contributions; without those of which nothing was measured."""
    texts: dict[str, str] = {}
    for one in contributions:
        if one.is_measured:
            texts[one.knob] = "; ".join(filter(None, [texts.get(one.knob, ""), str(one)]))
    return texts


def duels(metric: str, trials: Iterable[Trial], default: Config) -> tuple[Duel, ...]:
    """Every pair of configurations that met in a final and of which one has some of the other's changes, oldest final first."""
    finals: dict[tuple[str, ...], list[Trial]] = {}
    for trial in trials:
        if trial.proposal.origin.phase is Phase.FINAL:
            finals.setdefault(trial.proposal.origin.contenders, []).append(trial)
    pairs = []
    for members in finals.values():
        sides: dict[Config, dict[int, float]] = {trial.config: {} for trial in members}
        for trial in members:
            if trial.ok and metric in trial.measurement.metrics:
                sides[trial.config][trial.proposal.origin.round] = trial.measurement.metrics[metric]
        changed = {config: changes_of(default, config) for config in sides}
        shared = set.intersection(*(set(side) for side in sides.values()))
        noise = pooled_noise([[side[number] for number in sorted(shared)] for side in sides.values()])
        for one in sides:
            smaller = [other for other in sides if changed[other].items() < changed[one].items()]
            pairs += [_duel(sides, one, other, noise) for other in smaller]
    return tuple(pairs)


def _duel(sides: Mapping[Config, Mapping[int, float]], incumbent: Config, candidate: Config, noise: Noise | None) -> Duel:
    shared = sorted(sides[incumbent].keys() & sides[candidate].keys())
    return Duel(
        incumbent=incumbent,
        candidate=candidate,
        knobs=tuple(change.knob for change in differences(candidate, incumbent)),
        pairs=tuple((sides[incumbent][number], sides[candidate][number]) for number in shared),
        noise=noise,
    )


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
    observed = tuple(list(observations(task, trials).items())[-_MOST:])
    if len(observed) < MIN_CONFIGS:
        return {}
    return dict(_expected(observed, default, config, task.objective.direction, seed))


@lru_cache(maxsize=4)  # a study asks the same before every round after its search
def _expected(
    observed: tuple[tuple[Config, float], ...], default: Config, config: Config, direction: Direction, seed: int
) -> tuple[tuple[str, float], ...]:
    changed = [change.knob for change in differences(default, config)]
    if not changed:
        return ()
    configs = [each for each, _ in observed]
    variants = [config, *(put_back(config, default, [knob]) for knob in changed)]
    encoder = ForestEncoder([*configs, *variants])
    target = response([value for _, value in observed])
    forest = Forest(encoder.encode(configs), target, encoder.categorical, stream(seed, "report", "contributions"), trees=_TREES)
    opinions = forest.predict_each(encoder.encode(variants))
    steps = (opinions[:, 1:] - opinions[:, :1]) * (1.0 if direction is Direction.MINIMIZE else -1.0)
    return tuple((knob, float(step.mean())) for knob, step in zip(changed, steps.T, strict=True))


def put_back(config: Config, default: Config, knobs: Sequence[str]) -> Config:
    """`config` with some knobs as in `default`, and without those that `default` does not hold; it need not be valid."""
    return config.without(*knobs).extend({name: default[name] for name in knobs if name in default})


def measured_gains(metric: str, direction: Direction, trials: Iterable[Trial], default: Config, config: Config) -> dict[str, Gain]:
    """By how much `config` is better than without one of its changes, for each of which that was measured.

    Args:
        metric: What is compared.
        direction: Which way is better.
        trials: All trials of the study.
        default: What knobs are put back to.
        config: Whose changes are judged. In a final, a duel of another configuration counts where that has all changes of it, and more.
    """
    trials, changed = tuple(trials), changes_of(default, config)
    minimize = direction is Direction.MINIMIZE
    measured = _screened(metric, -1.0 if minimize else 1.0, trials, default, config)
    for duel in sorted(duels(metric, trials, default), key=lambda duel: (duel.incumbent == config, len(duel.pairs))):  # the last counts
        if len(duel.knobs) == 1 and duel.pairs and changed.items() <= changes_of(default, duel.incumbent).items():
            one, other = ([pair[side] for pair in duel.pairs] for side in (1, 0))
            measured[duel.knobs[0]] = paired_gain(one, other, minimize=minimize, noise=duel.noise)
    return {knob: gain for knob, gain in measured.items() if knob in changed}


def _screened(metric: str, sign: float, trials: Iterable[Trial], default: Config, config: Config) -> dict[str, Gain]:
    """What the pairs of simplifying tell of each change alone."""
    screen = Screen.of(trials, default)
    fit = screen.effects(metric)
    if fit is None:
        return {}
    columns = {knob: screen.column(knob, config) for knob in changes_of(default, config) if len(screen.together(knob, config)) == 1}
    return {knob: fit.gain(column, sign) for knob, column in columns.items() if column is not None and fit.knows(column)}


def contributions(
    task: Task, trials: Sequence[Trial], default: Config, config: Config, *, gain: Gain | None = None, exact: bool = False
) -> tuple[Contribution, ...]:
    """What each changed knob of `config` contributes to the goal, where that was measured, else unknown.

    Args:
        task: For objective and direction.
        trials: All trials of the study.
        default: What the knobs are compared with.
        config: Whose changed knobs are judged.
        gain: Of `config` over the default: what its only change contributes, where there is but one.
        exact: Every answer is the same each time: two single measurements tell all.
    """
    objective = task.objective
    measured = measured_gains(objective.metric, objective.direction, trials, default, config)
    changed = changes_of(default, config)
    if gain is not None and len(changed) == 1:
        measured[next(iter(changed))] = gain
    observed = observations(task, trials) if exact else {}
    for knob in changed:
        without = put_back(config, default, [knob])
        if knob not in measured and config in observed and without in observed:
            minimize = objective.direction is Direction.MINIMIZE
            measured[knob] = paired_gain([observed[without]], [observed[config]], minimize=minimize)
    return tuple(_contribution(knob, measured.get(knob), trials) for knob in changed)


def limit_contributions(trials: Sequence[Trial], default: Config, config: Config, limits: Sequence[Limit]) -> tuple[Contribution, ...]:
    """What each changed knob of `config` does for limits that the default breaks, where that was measured, else unknown.

    Args:
        trials: All trials of the study.
        default: What the knobs are compared with.
        config: Whose changed knobs are judged.
        limits: Those that it keeps and the default does not.
    """
    changed = changes_of(default, config)
    results = []
    for limit in limits:
        measured = measured_gains(limit.metric, limit.direction, trials, default, config)
        results += [_contribution(knob, measured.get(knob), trials, limit.metric) for knob in changed]
    return tuple(results)


def _contribution(knob: str, gain: Gain | None, trials: Sequence[Trial], metric: str = "") -> Contribution:
    if gain is None or gain.ratio is None:
        return Contribution(knob=knob, metric=metric)
    source = max((trial.measurement.fidelity for trial in trials), default=Fidelity.MEASURED).label
    return Contribution(knob=knob, ratio=gain.ratio, low=gain.low, high=gain.high, source=source, metric=metric)


__all__ = [
    "Contribution",
    "Duel",
    "contributions",
    "duels",
    "effects",
    "limit_contributions",
    "measured_gains",
    "put_back",
    "shown_contributions",
]
