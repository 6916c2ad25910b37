"""How good and bad configurations are spread: how many lie near the best, how many fail, and how far the worst is from the best.

Figures 1 and 2 of the AutoScout paper, from the trials of any study.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any

from autoscout.analysis.importance import observations
from autoscout.analysis.labels import differences
from autoscout.common.text import show_number
from autoscout.core.config import Config
from autoscout.core.origin import By, Phase
from autoscout.core.task import Task
from autoscout.core.trial import Fidelity, Status, Trial

NEAR = (0.05, 0.1, 0.5)
"""How far below the best a configuration may be, as a share of the best, to be counted: the lines of the table."""

DRAWN = frozenset({"random", "grid", By.PROFILING})
"""Who proposes without a look at what was measured: only their configurations say how the space is made."""

CONFIDENCE = 1.96
"""Standard errors on either side of a share: 95 %."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Configurations of one kind.

    Attributes:
        title: What they have in common.
        configs: How many different ones were tried.
        failed: How many never ran.
        broken: How many ran and break a limit.
        bounded: How many work but were stopped early, so that nobody knows how good they are.
        ratios: Of the others: how many times better the best of the study is.
    """

    title: str
    configs: int
    failed: int
    broken: int
    bounded: int
    ratios: tuple[float, ...]

    def near(self, share: float) -> int:
        """How many are at most this share worse than the best: at least 95 % of its throughput, or its time over 95 %."""
        return sum(ratio * (1.0 - share) <= 1.0 + 1e-9 for ratio in self.ratios)

    @property
    def worst(self) -> float | None:
        """How many times better the best is than the worst that ran and keeps every limit."""
        return max(self.ratios, default=None)

    def to_json(self) -> dict[str, Any]:
        near = {f"{share:g}": self.near(share) for share in NEAR}
        facts = {name: value for name, value in vars(self).items() if name != "ratios"}
        return {**facts, "near": near, "best_over_worst": self.worst}


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """The distribution of one study.

    Attributes:
        metric: What they are compared by.
        sample: The configurations drawn without a look at what was measured; None without any.
        searched: Those that a searcher chose; None without any.
        by_changes: What was drawn, or without a sample what was searched, by the number of knobs that differ from the reference.
        by_grid: Whether a grid listed some of the sample.
        note: What the numbers do not speak for, where whoever made the sample knows better.
    """

    metric: str
    sample: Spread | None
    searched: Spread | None
    by_changes: Mapping[int, Spread] = field(default_factory=dict)
    by_grid: bool = False
    note: str = ""

    @property
    def counted(self) -> Spread:
        """What the sentence is about: the sample where there is one."""
        chosen = self.sample or self.searched
        assert chosen is not None, "there is no distribution of nothing"
        return chosen

    @cached_property
    def sentence(self) -> str:
        """`3 of 40 configurations drawn at random are within 10 % of the best (8 %; 95 % interval 3 to 20 %), ...`."""
        spread, share = self.counted, NEAR[1]
        near, interval = spread.near(share), ""
        if self.sample is not None and not self.by_grid:
            low, high = share_interval(near, spread.configs)
            interval = f"; 95 % interval {low:.0%} to {high:.0%}"
        worst = "" if spread.worst is None else f"; the best is {show_number(spread.worst)} times as good as the worst"
        return (
            f"{near} of {spread.configs} configurations {spread.title} are within {share:.0%} of the best found "
            f"({near / spread.configs:.0%}{interval}), {spread.failed} failed{worst}"
        )

    @property
    def caveat(self) -> str:
        """What the numbers do not speak for."""
        if self.note:
            return self.note
        if self.sample is None:
            return (
                "A searcher chose these configurations because they looked good: they are no sample of the space, which may hold far fewer "
                "good ones. A study with --searcher random or grid gives one."
            )
        grid = " A grid holds few values of each knob, and one that was cut short only its first combinations." if self.by_grid else ""
        return (
            f"Only configurations drawn without a look at results say how the space is made; those of a searcher are counted apart.{grid}"
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "metric": self.metric,
            "sample": self.sample.to_json() if self.sample else None,
            "searched": self.searched.to_json() if self.searched else None,
            "by_changes": {str(count): spread.to_json() for count, spread in self.by_changes.items()},
            "is_sample": self.sample is not None,
            "sentence": self.sentence,
            "caveat": self.caveat,
        }


def distribution_of(task: Task, trials: Sequence[Trial], reference: Config) -> Distribution | None:
    """How the configurations of a study's search are spread; None where nothing ran, or where values have no ratio.

    Args:
        task: With its guards bound.
        trials: Those that count.
        reference: What changes are counted from.
    """
    values = observations(task, trials)
    fidelity = max((trial.measurement.fidelity for trial in trials if trial.ok), default=Fidelity.MEASURED)
    trials = [trial for trial in trials if trial.measurement.fidelity is fidelity]  # what was only simulated did not fail
    drawn, chosen, by_grid = _origins(trials)
    keepers = _keeping(task, trials)
    good = {config: value for config, value in values.items() if config in keepers}
    if not good or min(good.values()) <= 0.0 or not (drawn or chosen):
        return None
    best = max(good.values(), key=lambda value: task.objective.gain(1.0, value))
    ratios = {config: task.objective.gain(value, best) for config, value in good.items()}
    bounded = {trial.config for trial in trials if trial.measurement.status is Status.BOUNDED} - values.keys()

    def spread(title: str, configs: Collection[Config]) -> Spread | None:
        if not configs:
            return None
        kinds = Counter(
            "good" if config in ratios else "broken" if config in values else "bounded" if config in bounded else "failed"
            for config in configs
        )
        shares = tuple(sorted(ratios[config] for config in configs if config in ratios))
        return Spread(
            title=title, configs=len(configs), failed=kinds["failed"], broken=kinds["broken"], bounded=kinds["bounded"], ratios=shares
        )

    return Distribution(
        metric=task.objective.metric,
        sample=spread("listed by a grid" if by_grid else "drawn at random", drawn),
        searched=spread("chosen by the search", chosen),
        by_changes=_by_changes(drawn or chosen, reference, spread),
        by_grid=by_grid,
    )


def share_interval(count: int, total: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share: it also holds for few trials, and for none or all of them."""
    share, square = count / total, CONFIDENCE**2
    middle = (share + square / (2 * total)) / (1 + square / total)
    reach = CONFIDENCE / (1 + square / total) * math.sqrt(share * (1 - share) / total + square / (4 * total**2))
    return max(0.0, middle - reach), min(1.0, middle + reach)


def _origins(trials: Sequence[Trial]) -> tuple[list[Config], list[Config], bool]:
    """The configurations that were drawn, those that a searcher chose, and whether a grid listed some of the first.

    The first proposal of a configuration counts. Those of people and those measured first (default, baseline) are neither.
    """
    first: dict[Config, Trial] = {}
    for trial in trials:
        if trial.proposal.origin.phase is Phase.SEARCH and trial.measurement.status is not Status.ABORTED:
            first.setdefault(trial.config, trial)
    others = {By.DEFAULT, By.BASELINE, By.GIVEN, By.ASKED, By.PROFILE}
    origins = {config: trial.proposal.origin for config, trial in first.items() if trial.proposal.origin.by not in others}
    drawn = [config for config, origin in origins.items() if origin.by in DRAWN and "stage" not in origin.notes]  # stages follow results
    of_drawn = set(drawn)
    chosen = [config for config in origins if config not in of_drawn]
    return drawn, chosen, any(origins[config].by == "grid" for config in drawn)


def _keeping(task: Task, trials: Sequence[Trial]) -> set[Config]:
    """The configurations that kept every limit in most of their trials."""
    held: dict[Config, list[bool]] = {}
    for trial in trials:
        if trial.ok:
            held.setdefault(trial.config, []).append(math.isfinite(task.objective.loss(trial.measurement)))
    return {config for config, answers in held.items() if 2 * sum(answers) > len(answers)}


def _by_changes(
    configs: Sequence[Config], reference: Config, spread: Callable[[str, Collection[Config]], Spread | None]
) -> dict[int, Spread]:
    def count(config: Config) -> int:
        return len(differences(reference, config))

    groups = groupby(sorted(configs, key=count), count)
    spreads = {changes: spread(f"{changes} changed", list(group)) for changes, group in groups}
    return {changes: group for changes, group in spreads.items() if group is not None}


__all__ = ["NEAR", "Distribution", "Spread", "distribution_of", "share_interval"]
