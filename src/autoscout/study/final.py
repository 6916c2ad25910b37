"""The final: the best few and the engine's default, measured again side by side.

The search picks the configuration that *looked* best, which flatters it. The final measures default and finalists again in
rounds, in an order that rotates so that drift of the machine hits all alike; only these numbers decide. Where there are limits, one of the
finalists keeps them with a margin, if there is such a configuration. Where all finalists fall, the next best meet the default.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from autoscout.analysis.gain import MIN_PAIRS
from autoscout.analysis.limits import repeat_noise
from autoscout.analysis.verdict import decide
from autoscout.common.front import choose
from autoscout.core.config import Config
from autoscout.core.errors import require
from autoscout.core.guards import bind
from autoscout.core.origin import Origin, Phase
from autoscout.core.task import Limit, Task
from autoscout.core.trial import LONG, Fidelity, Measurement, Proposal, Trial

EDITIONS = 3
"""How many fields of finalists may meet the default, one after another, where all of the one before fell."""
MARGIN = 2.0
"""How many times the noise of its metric a configuration must be away from a limit to keep it with a margin."""
USUAL_NOISE = 0.05
"""Of a metric of which nothing was measured twice."""


@dataclass(frozen=True, kw_only=True)
class Finals:
    """How much the final may measure: `finalists` besides the default, `rounds` times each. Zero rounds: no final.

    `simplify`: first find out which of the winner's changes the gain does not need (`autoscout.study.simplify`).
    `references`: How many take part in any case: the default, and the baseline where there is one.
    """

    finalists: int = 2
    rounds: int = 5
    simplify: bool = True
    references: int = 1

    def __post_init__(self) -> None:
        rule = "must not be negative"
        require("finals", self, {"finalists": (self.finalists >= 0, rule), "rounds": (self.rounds >= 0, rule)})

    @property
    def trials(self) -> int:
        return self.rounds * (self.finalists + self.references) if self.finalists else 0

    @property
    def least(self) -> int:
        """Trials of the shortest final that ends with an interval: of those that take part in any case, and one other."""
        return (self.references + 1) * min(self.rounds, MIN_PAIRS) if self.finalists else 0


@dataclass(frozen=True, kw_only=True)
class Simplified:
    """How far the winner was simplified (`autoscout.study.simplify`).

    Attributes:
        config: The winner with the changes that are shown to be needed; the winner itself before that; None without a winner.
        lenient: The same with the changes that may bring something, too; None where that is not known.
        heat: The rounds to measure next; none when it is over.
        without: `config` without one of its changes, for those whose effect no heat has measured, the most doubtful first.
        unproven: While no heat is complete: `config` with the changes that are predicted to bring half of the gain, and most of it.
        bare: Where a better configuration than the winner has no margin to a limit: that with the changes that are predicted to matter.
    """

    config: Config | None = None
    lenient: Config | None = None
    heat: tuple[tuple[Proposal, ...], ...] = ()
    without: tuple[Config, ...] = ()
    unproven: tuple[Config, ...] = ()
    bare: tuple[Config, ...] = ()


def long_factor(measured: Sequence[Measurement], steps: int, curves: Sequence[str]) -> float:
    """How many times as long as a trial a run of that length takes, by what trials spent on starting and on steps."""
    factors = []
    for one in measured:
        longest = max((len(one.samples[name]) for name in curves if name in one.samples), default=0)
        stepping_s = one.conditions.get("warm_up_s", 0.0) + one.conditions.get("measure_s", 0.0)
        if longest and one.cost_s > 0 and LONG not in one.conditions:
            factors.append(max(1.0, (one.cost_s + stepping_s * (steps / longest - 1)) / one.cost_s))
    return median(factors) if factors else 1.0


def finalists(trials: Sequence[Trial], task: Task, default: Config, count: int, also: Config | None = None) -> list[Config]:
    """The best distinct configurations of the search at its highest fidelity, those aside that take part in any case.

    Where there are several, one of them keeps every limit with a margin, if any does.
    """
    losses = _losses(trials, task, default, also)
    task = bind(task, _search(trials), default)
    chosen = _of_front(_search(trials), task, losses, count) if task.objective.several else list(losses)[:count]
    return _with_margin(chosen, list(losses), trials, task)


def winner(trials: Sequence[Trial], task: Task, default: Config) -> Config | None:
    """The best configuration of the search; of those that keep every limit with a margin, where there are any. None without any."""
    if not task.objective.several:
        safe = _safe(list(_losses(trials, task, default, None)), trials, bind(task, _search(trials), default))
        if safe is not None:
            return safe
    return next(iter(finalists(trials, task, default, 1)), None)


def _search(trials: Sequence[Trial]) -> list[Trial]:
    return [trial for trial in trials if trial.proposal.origin.phase is Phase.SEARCH and trial.ok]


def _losses(trials: Sequence[Trial], task: Task, default: Config, also: Config | None) -> dict[Config, float]:
    """The least loss of each configuration but those two at the highest fidelity of the search, best first."""
    search = _search(trials)
    top = max((trial.measurement.fidelity for trial in search), default=Fidelity.PREDICTED)
    task = bind(task, search, default)
    losses: dict[Config, float] = {}
    for trial in search:
        loss = task.objective.loss(trial.measurement)
        if trial.measurement.fidelity is top and top is not Fidelity.PREDICTED and math.isfinite(loss):
            losses[trial.config] = min(loss, losses.get(trial.config, math.inf))
    for config in (default, also):
        if config is not None:
            losses.pop(config, None)
    return {config: losses[config] for config in sorted(losses, key=lambda config: (losses[config], config.canonical))}


def _with_margin(chosen: list[Config], ranked: Sequence[Config], trials: Sequence[Trial], task: Task) -> list[Config]:
    """These, the last replaced by the best that keeps every limit with a margin, where none of them does and there is one.

    Args:
        chosen: At least two, or they stay.
        ranked: Who may take the place, best first.
        trials: Everything stored.
        task: With its guards bound.
    """
    if len(chosen) < 2 or _safe(chosen, trials, task) is not None:
        return chosen
    safe = _safe(ranked, trials, task)
    return chosen if safe is None else [*chosen[:-1], safe]


def _safe(ranked: Sequence[Config], trials: Sequence[Trial], task: Task) -> Config | None:
    """The first of these that keeps every limit with a margin; None without limits, and where there is none.

    Args:
        ranked: Who is looked at, in this order.
        trials: Everything stored; only the search counts, or what is measured later would change who takes part in it.
        task: With its guards bound.
    """
    if not task.objective.limits:
        return None
    runs: dict[Config, list[Trial]] = {}
    for trial in _search(trials):
        if trial.measurement.fidelity is Fidelity.MEASURED:
            runs.setdefault(trial.config, []).append(trial)
    keepers = set(runs)
    for limit in task.objective.limits:
        keepers = _keepers(limit, {config: members for config, members in runs.items() if config in keepers}, runs)
    return next((config for config in ranked if config in keepers), None)


def _keepers(limit: Limit, runs: Mapping[Config, Sequence[Trial]], everything: Mapping[Config, Sequence[Trial]]) -> set[Config]:
    """Those that keep a limit with a margin."""

    def values(members: Sequence[Trial]) -> list[float]:
        return [trial.measurement.metrics[limit.metric] for trial in members if limit.metric in trial.measurement.metrics]

    noise = repeat_noise(values(members) for members in everything.values())
    deviation = noise.deviation if noise else USUAL_NOISE
    measured = {config: (median(own), len(own)) for config, members in runs.items() if (own := values(members))}
    return {
        config
        for config, (value, count) in measured.items()
        if limit.allows(value) and _distance(limit, value) >= MARGIN * deviation / math.sqrt(count)
    }


def _distance(limit: Limit, value: float) -> float:
    """From the limit, in logarithms; infinite where there are none."""
    return abs(math.log(value / limit.value)) if value > 0 and limit.value > 0 else math.inf


def fallen(trials: Sequence[Trial], task: Task, default: Config, rounds: int, also: Config | None = None) -> frozenset[Config]:
    """Who took part in finals that are over, where none of them may be handed over: failed or broke a limit. Nobody where one stands.

    Those who take part in any case do not count.
    """
    references = tuple(config for config in (default, also) if config is not None)
    editions: dict[tuple[str, ...], dict[Config, int]] = {}
    for trial in trials:
        origin = trial.proposal.origin
        if origin.phase is Phase.FINAL and trial.config not in references:
            counts = editions.setdefault(origin.contenders, {})
            counts[trial.config] = counts.get(trial.config, 0) + 1
    over = {config for names, counts in editions.items() if _is_over(names, counts, references, rounds) for config in counts}
    if not over:
        return frozenset()
    finalists_ = (finalist for finalist in decide(task, trials, default).finalists if finalist.side.config in over)
    return frozenset() if any(finalist.eligible and finalist.side.holds for finalist in finalists_) else frozenset(over)


def _is_over(names: tuple[str, ...], counts: Mapping[Config, int], references: Sequence[Config], rounds: int) -> bool:
    missing = set(names) - {config.key for config in references} - {config.key for config in counts}
    return not missing and all(count >= rounds for count in counts.values())


def _of_front(trials: Sequence[Trial], task: Task, among: Collection[Config], count: int) -> list[Config]:
    """With several goals: points of the front that cover most of it together, the best by the first goal in front."""
    losses_of: dict[Config, list[tuple[float, ...]]] = {}
    for trial in trials:
        if trial.config in among and math.isfinite((losses := task.objective.losses(trial.measurement))[0]):
            losses_of.setdefault(trial.config, []).append(losses)
    configs = sorted(losses_of, key=lambda config: config.canonical)
    if not configs:
        return []
    return [configs[row] for row in choose(np.array([np.mean(losses_of[config], axis=0) for config in configs]), count)]


def numbered(trials: Sequence[Trial], phase: Phase, contenders: tuple[str, ...], count: int) -> list[int]:
    """Round numbers for `count` rounds of these configurations: existing ones first, then fresh ones."""
    past = [trial.proposal.origin for trial in trials if trial.proposal.origin.phase in (Phase.SIMPLIFY, Phase.FINAL)]
    numbers = sorted({origin.round for origin in past if origin.phase is phase and origin.contenders == contenders})
    last = max((origin.round for origin in past), default=0)
    return [*numbers, *range(last + 1, last + 1 + count - len(numbers))][:count]


def _names(references: Sequence[Config], chosen: Sequence[Config]) -> tuple[str, ...]:
    return tuple(sorted({config.key for config in (*references, *chosen)}))


def _in_time(
    trials: Sequence[Trial],
    references: Sequence[Config],
    finals: Finals,
    chosen: list[Config],
    more: list[Config],
    fits: Callable[[int], bool],
) -> list[Config]:
    """Who takes part: those of the final that has begun, else as many as there is time for, and be it the first alone."""
    enough = min(finals.rounds, MIN_PAIRS)  # rounds without which there is no interval
    fields = [(more, finals.rounds), *((chosen[:count], enough) for count in range(len(chosen), 0, -1))]
    begun = {trial.proposal.origin.contenders for trial in trials if trial.proposal.origin.phase is Phase.FINAL}
    for field, _ in fields:
        if _names(references, field) in begun:
            return field
    return next((field for field, rounds in fields if fits(rounds * (len(field) + len(references)))), chosen[:1])


def plan(
    trials: Sequence[Trial],
    task: Task,
    default: Config,
    finals: Finals,
    among: Sequence[Trial] | None = None,
    simplified: Simplified = Simplified(),
    fits: Callable[[int], bool] = lambda _: True,
    also: Config | None = None,
) -> list[list[Proposal]]:
    """The rounds of the final, one list of proposals each; empty when there is nobody to compare the default with.

    Made from stored trials alone, so that a study killed in its final resumes it. When more searching has changed who the
    finalists are, a new edition begins, the default included, because only what ran side by side can be compared. Rounds
    (and repeats, which equal them) count on through the editions from 1, so that no two share one; repeat 0 is the search's
    own look.

    Args:
        trials: Everything stored.
        task: What is tuned.
        default: The configuration to compare with: the reference.
        finals: How much to measure.
        among: The trials from which the finalists are chosen; all when None.
        simplified: The winner with fewer changes goes first, then with those that may bring something, then as the search left it.
            The best that has no margin, with fewer changes by prediction, is a further finalist where there is time, and so is the winner
            without one of its changes each, which shows what the change contributes; there are at most as many of these as there are
            others. Where there was no time to simplify, those with fewer changes by prediction alone meet the winner
            here, in place of all of these.
        fits: Whether there is time for this many trials. Where there is none for `without` they are left out, and where there is none
            for enough rounds of all finalists there are fewer of them, at least one. Once the final has begun, it continues as it began.
        also: Takes part in any case, like the default: the engine's default where the reference is the baseline, and the other way round.
    """
    inside = trials if among is None else among
    references = tuple(config for config in (default, also) if config is not None)
    chosen, bound = finalists(inside, task, default, finals.finalists, also), bind(task, trials, default)
    if chosen and simplified.config is not None:
        first = [config for config in (simplified.config, simplified.lenient) if config is not None]
        chosen = [config for config in dict.fromkeys([*first, *chosen]) if config not in references][: finals.finalists]
    if not chosen and not (finals.finalists and any(trial.ok for trial in inside if trial.config == also)):
        return []
    further = dict.fromkeys([*chosen, *simplified.bare, *simplified.without[: finals.finalists]])
    more = [config for config in further if config not in references]
    if simplified.unproven and finals.finalists > 1 and chosen:
        more = [chosen[0], *(config for config in simplified.unproven if config not in references)]
        chosen = more[: finals.finalists]
    field = chosen
    if simplified.config is None and bound.objective.limits:  # else the winner that was simplified has a margin
        field = _with_margin(chosen, list(_losses(inside, task, default, also)), trials, bound)
    more = [*field, *(config for config in more if config not in chosen)]
    chosen = _in_time(trials, references, finals, field, more, fits)
    names = _names(references, chosen)
    rounds = []
    for number in numbered(trials, Phase.FINAL, names, finals.rounds):
        field = [*(config for config in references if number <= _last_round(trials, config, names)), *chosen]
        start = (number - 1) % len(field)
        origin = Origin(phase=Phase.FINAL, round=number, contenders=names)
        rounds.append([Proposal(config=config, origin=origin, repeat=number) for config in field[start:] + field[:start]])
    return rounds


def _last_round(trials: Sequence[Trial], config: Config, names: tuple[str, ...]) -> float:
    """The last round in which one of the references is measured: if it does not run it fails once, not in every round."""
    tried = [trial for trial in trials if trial.config == config]
    failed = [trial.proposal.origin.round for trial in tried if trial.proposal.origin.contenders == names and not trial.ok]
    return math.inf if any(trial.ok for trial in tried) else min(failed, default=math.inf)
