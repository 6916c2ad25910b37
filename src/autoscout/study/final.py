"""The final: the best few and the engine's default, measured again side by side.

The search picks the configuration that *looked* best, which flatters it. The final measures default and finalists again in
rounds, in an order that rotates so that drift of the machine hits all alike; only these numbers decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from heapq import nsmallest

import numpy as np

from autoscout.analysis.gain import MIN_PAIRS
from autoscout.common.front import choose
from autoscout.core.config import Config
from autoscout.core.errors import require
from autoscout.core.guards import bind
from autoscout.core.origin import Origin, Phase
from autoscout.core.task import Task
from autoscout.core.trial import Fidelity, Proposal, Trial


@dataclass(frozen=True, kw_only=True)
class Finals:
    """How much the final may measure: `finalists` besides the default, `rounds` times each. Zero rounds: no final.

    `simplify`: first find out which of the winner's changes the gain does not need (`autoscout.study.simplify`).
    """

    finalists: int = 2
    rounds: int = 5
    simplify: bool = True

    def __post_init__(self) -> None:
        rule = "must not be negative"
        require("finals", self, {"finalists": (self.finalists >= 0, rule), "rounds": (self.rounds >= 0, rule)})

    @property
    def trials(self) -> int:
        return self.rounds * (self.finalists + 1) if self.finalists else 0

    @property
    def least(self) -> int:
        """Trials of the shortest final that ends with an interval: of the default and one other."""
        return 2 * min(self.rounds, MIN_PAIRS) if self.finalists else 0


def finalists(trials: Sequence[Trial], task: Task, default: Config, count: int) -> list[Config]:
    """The best distinct configurations of the search at its highest fidelity, the default aside."""
    search = [trial for trial in trials if trial.proposal.origin.phase is Phase.SEARCH and trial.ok]
    if not search:
        return []
    top = max(trial.measurement.fidelity for trial in search)
    task = bind(task, search, default)
    losses: dict[Config, float] = {}
    for trial in search:
        loss = task.objective.loss(trial.measurement)
        if trial.measurement.fidelity is top and top is not Fidelity.PREDICTED and math.isfinite(loss) and trial.config != default:
            losses[trial.config] = min(loss, losses.get(trial.config, math.inf))
    if task.objective.several:
        return _of_front(search, task, losses, count)
    return nsmallest(count, losses, key=lambda config: (losses[config], config.canonical))


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


def _names(default: Config, chosen: Sequence[Config]) -> tuple[str, ...]:
    return tuple(sorted(config.key for config in (default, *chosen)))


def _in_time(
    trials: Sequence[Trial], default: Config, finals: Finals, chosen: list[Config], more: list[Config], fits: Callable[[int], bool]
) -> list[Config]:
    """Who takes part: those of the final that has begun, else as many as there is time for, else all that were chosen."""
    enough = min(finals.rounds, MIN_PAIRS)  # rounds without which there is no interval
    fields = [(more, finals.rounds), *((chosen[:count], enough) for count in range(len(chosen), 0, -1))]
    begun = {trial.proposal.origin.contenders for trial in trials if trial.proposal.origin.phase is Phase.FINAL}
    for field, _ in fields:
        if _names(default, field) in begun:
            return field
    return next((field for field, rounds in fields if fits(rounds * (len(field) + 1))), chosen)


def plan(
    trials: Sequence[Trial],
    task: Task,
    default: Config,
    finals: Finals,
    among: Sequence[Trial] | None = None,
    simplified: Config | None = None,
    without: Sequence[Config] = (),
    unproven: Sequence[Config] = (),
    fits: Callable[[int], bool] = lambda _: True,
) -> list[list[Proposal]]:
    """The rounds of the final, one list of proposals each; empty when there is nobody to compare the default with.

    Made from stored trials alone, so that a study killed in its final resumes it. When more searching has changed who the
    finalists are, a new edition begins, the default included, because only what ran side by side can be compared. Rounds
    (and repeats, which equal them) count on through the editions from 1, so that no two share one; repeat 0 is the search's
    own look.

    Args:
        trials: Everything stored.
        task: What is tuned.
        default: The configuration to compare with.
        finals: How much to measure.
        among: The trials from which the finalists are chosen; all when None.
        simplified: The winner with fewer changes, which goes first, before the winner itself.
        without: The same without one of its changes each: further finalists, which show what the change contributes; at most as many
            as there are others.
        unproven: The winner with fewer changes by prediction alone: where there was no time to simplify, they meet the winner here, in
            place of others and of `without`.
        fits: Whether there is time for this many trials. Where there is none for `without` they are left out, and where there is none
            for enough rounds of all finalists there are fewer of them. Once the final has begun, it continues as it began.
    """
    chosen = finalists(trials if among is None else among, task, default, finals.finalists)
    if chosen and simplified is not None:
        chosen = list(dict.fromkeys([simplified, *chosen]))[: finals.finalists]
    if not chosen:
        return []
    more = list(dict.fromkeys([*chosen, *without[: finals.finalists]]))
    if unproven and finals.finalists > 1:
        more = [chosen[0], *unproven]
        chosen = more[: finals.finalists]
    chosen = _in_time(trials, default, finals, chosen, more, fits)
    names = _names(default, chosen)
    rounds = []
    tried = [trial for trial in trials if trial.config == default]
    failed = [trial.proposal.origin.round for trial in tried if trial.proposal.origin.contenders == names and not trial.ok]
    last = math.inf if any(trial.ok for trial in tried) else min(failed, default=math.inf)
    for number in numbered(trials, Phase.FINAL, names, finals.rounds):
        field = [default, *chosen] if number <= last else chosen  # a default that does not run fails once, not in every round
        start = (number - 1) % len(field)
        origin = Origin(phase=Phase.FINAL, round=number, contenders=names)
        rounds.append([Proposal(config=config, origin=origin, repeat=number) for config in field[start:] + field[:start]])
    return rounds
