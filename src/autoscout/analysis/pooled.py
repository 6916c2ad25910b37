"""One configuration with its repeats pooled: medians of its metrics, and its limits as the intervals decide them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from autoscout.analysis.gain import Noise
from autoscout.analysis.limits import MIN_RUNS, LimitCheck, check_limit, repeat_noise
from autoscout.common.stats import variation
from autoscout.core.config import Config
from autoscout.core.origin import Phase
from autoscout.core.task import Limit, Task
from autoscout.core.trial import Trial


@dataclass(frozen=True, kw_only=True)
class PooledRuns:
    """One configuration with its repeats pooled.

    Attributes:
        config: The configuration.
        name: Its short readable name.
        runs: How many good measurements are pooled here.
        failures: How many times it failed among those looked at.
        value: Median of the objective; None when it never ran.
        spread: Standard deviation over mean of the pooled runs.
        metrics: All metrics, pooled the same way.
        limits: Each limit, decided by the interval of its metric.
        trials: Numbers of the trials pooled.
        rounds: Objective per final round; empty when the numbers come from the search phase.
    """

    config: Config
    name: str
    runs: int
    failures: int
    value: float | None
    spread: float | None
    metrics: Mapping[str, float]
    limits: tuple[LimitCheck, ...]
    trials: tuple[int, ...]
    rounds: Mapping[int, float] = field(default_factory=dict)

    @property
    def is_broken(self) -> bool:
        """Whether it breaks a limit beyond doubt."""
        return any(check.is_broken for check in self.limits)

    @property
    def is_safe(self) -> bool:
        """Whether it ran and keeps every limit beyond doubt."""
        return self.value is not None and all(check.is_kept for check in self.limits)

    @property
    def holds(self) -> bool:
        """Whether it ran and its medians keep every limit, beyond doubt or not."""
        return self.value is not None and all(check.holds for check in self.limits)

    @property
    def can_keep(self) -> bool:
        """Whether it ran and may keep every limit: none is broken beyond doubt, and with few measurements the medians keep them all."""
        return self.value is not None and not self.is_broken and (self.holds or self.runs >= MIN_RUNS)

    @property
    def unsure(self) -> tuple[LimitCheck, ...]:
        """The limits from which it is not told apart."""
        return tuple(check for check in self.limits if not check.is_kept and not check.is_broken)

    def to_json(self) -> dict[str, Any]:
        return {
            "config": self.config.to_json(),
            "key": self.config.key,
            "name": self.name,
            "runs": self.runs,
            "failures": self.failures,
            "value": self.value,
            "spread": self.spread,
            "metrics": dict(self.metrics),
            "limits": [check.to_json() for check in self.limits],
            "trials": list(self.trials),
        }


class Pooling:
    """Pools the trials of one study, configuration by configuration."""

    def __init__(
        self,
        task: Task,
        groups: Mapping[Config, Sequence[Trial]],
        default: Config,
        name_of: Callable[[Config], str],
        *,
        exact: bool = False,
    ) -> None:
        """Learn the noise of the limited metrics.

        Args:
            task: With its guards bound.
            groups: The trials that count, by configuration.
            default: What guards compare with.
            name_of: Gives configurations their readable names.
            exact: Every answer is the same each time.
        """
        self.has_final = any(round_of(trial) is not None for group in groups.values() for trial in group)
        self._task, self._default, self._name_of, self._exact = task, default, name_of, exact
        limited = {limit.metric for limit in task.objective.limits}
        self._noise: dict[str, Noise | None] = {
            metric: repeat_noise(_values(trials, metric) for trials in groups.values()) for metric in limited
        }
        measured = [trial for trial in groups.get(default, []) if trial.ok]
        self._reference = {number: trial.measurement.metrics for trial in measured if (number := round_of(trial)) is not None}

    def side(self, config: Config, trials: Sequence[Trial]) -> PooledRuns | None:
        """Pool a configuration's trials: those of the final phase where it has any, else all; None without any."""
        if self.has_final:
            trials = [trial for trial in trials if round_of(trial) is not None] or trials
        if not trials:
            return None
        objective = self._task.objective
        good = [trial for trial in trials if objective.value(trial.measurement) is not None]
        metrics = _middle(trial.measurement.metrics for trial in good)
        rounds: dict[int, list[float]] = {}
        for trial in good:
            if (number := round_of(trial)) is not None:
                rounds.setdefault(number, []).append(trial.measurement.metrics[objective.metric])
        return PooledRuns(
            config=config,
            name=self._name_of(config),
            runs=len(good),
            failures=len(trials) - len(good),
            value=metrics.get(objective.metric),
            spread=variation(_values(good, objective.metric)),
            metrics=metrics,
            limits=tuple(self._check(limit, config, good) for limit in objective.limits),
            trials=tuple(trial.number for trial in trials),
            rounds={number: median(round_values) for number, round_values in sorted(rounds.items())},
        )

    def _check(self, limit: Limit, config: Config, good: Sequence[Trial]) -> LimitCheck:
        values = _values(good, limit.metric)
        if not limit.guard:
            return check_limit(limit, values, self._noise[limit.metric], exact=self._exact)
        if config == self._default:  # the guard is made from these very values
            return check_limit(limit, values, exact=True)
        same_rounds = self._same_rounds(limit.metric, good)  # ratios scatter otherwise than single measurements do
        noise = None if len(same_rounds) >= MIN_RUNS else self._noise[limit.metric]
        return check_limit(limit, same_rounds or values, noise, exact=self._exact)

    def _same_rounds(self, metric: str, good: Sequence[Trial]) -> list[float]:
        """What a metric would have been had every round been like the default's median one, so that drift of the machine cancels."""
        pairs = []
        for trial in good:
            number = round_of(trial)
            reference = None if number is None else self._reference.get(number, {}).get(metric)
            if reference and metric in trial.measurement.metrics:
                pairs.append((trial.measurement.metrics[metric], reference))
        middle = median(reference for _, reference in pairs) if pairs else 0.0
        return [value / reference * middle for value, reference in pairs]


def round_of(trial: Trial) -> int | None:
    """The round of the final that a trial belongs to; None for a trial of the search."""
    origin = trial.proposal.origin
    return (origin.round or trial.proposal.repeat) if origin.phase is Phase.FINAL else None


def _values(trials: Iterable[Trial], metric: str) -> list[float]:
    return [trial.measurement.metrics[metric] for trial in trials if trial.ok and metric in trial.measurement.metrics]


def _middle(measurements: Iterable[Mapping[str, float]]) -> dict[str, float]:
    gathered: dict[str, list[float]] = {}
    for metrics in measurements:
        for name, value in metrics.items():
            gathered.setdefault(name, []).append(value)
    return {name: median(values) for name, values in gathered.items()}


__all__ = ["PooledRuns", "Pooling", "round_of"]
