"""Simplify: which of the winner's changes does the gain not need?

A search changes many knobs at once, and some only by chance. Between search and final, groups of the winner's changed knobs are put
back to the default and measured next to the winner in rounds whose order rotates: a heat. The first heat has candidates that keep only
the one, two, three, five, ... knobs predicted to matter most. Of the candidates that are not worse beyond noise, the one with the fewest
changes takes the winner's place. Further heats put back first the knobs by which two candidates differed without a difference (a wrong
prediction), then the others one by one, as far as the bounds allow. Where no candidate is as good, the changes are halved, and what is
worse is halved again. Changes whose effect no heat has measured are left to the final, which meets the answer without each of them.

Nothing is remembered: `simplify` works out from the stored trials how far it is, so that a study that was killed resumes here too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from autoscout.analysis.contributions import compare, duels, effects, measured_gains, put_back
from autoscout.analysis.labels import differences
from autoscout.core.config import Config, Value
from autoscout.core.guards import bind
from autoscout.core.origin import By, Origin, Phase
from autoscout.core.task import Task
from autoscout.core.trial import Proposal, Trial
from autoscout.study.final import finalists, numbered

ROUNDS = 3
"""Rounds of a heat where answers are noisy: the fewest that give an interval."""
FREEDOM = 4
"""Degrees of freedom, (configurations - 1) * (rounds - 1), that the noise of a heat is estimated with at least."""
CONFIDENCE = 0.99
"""Of the interval that must lie below "as good" before changes are kept: a knob is kept by mistake once in 200 heats."""
KEEPS = (1, 2, 3, 5, 8, 13, 21, 34)
"""How many of the knobs that are predicted to matter most the candidates of the first heat keep."""
EXPLAINED = 0.95
"""Share of the predicted gain that the largest of them shall explain."""
HALF = 0.5
"""The same for the simpler of the two that take part in a final before which there was no time to simplify."""

Group = tuple[str, ...]
"""Knobs that are put back together."""
Project = Callable[[Mapping[str, Value]], Config]
"""Gives the valid configuration nearest to what is wanted: `space.project`."""


@dataclass(frozen=True, kw_only=True)
class Simplify:
    """How much may be measured: `rounds` for each candidate, `trials` in all. No rounds: off. One round: answers are exact."""

    rounds: int = 0
    trials: int = 0

    @property
    def exact(self) -> bool:
        return self.rounds == 1


@dataclass(frozen=True, kw_only=True)
class Simplified:
    """How far it is.

    Attributes:
        config: The simplest configuration shown to be as good as the winner; the winner itself where none is; None without a winner.
        heat: The rounds to measure next; none when it is over.
        without: `config` without one of its changes, for those whose effect no heat has measured, the most doubtful first.
        unproven: While no heat is complete: `config` with the changes that are predicted to bring half of the gain, and most of it.
    """

    config: Config | None = None
    heat: tuple[tuple[Proposal, ...], ...] = ()
    without: tuple[Config, ...] = ()
    unproven: tuple[Config, ...] = ()


def simplify(
    trials: Sequence[Trial], task: Task, default: Config, bounds: Simplify, project: Project, among: Sequence[Trial] | None = None
) -> Simplified:
    """Work out from the stored trials what is shown and what to measure next.

    Args:
        trials: Everything stored.
        task: What is tuned.
        default: Where knobs go back to.
        bounds: How much may be measured.
        project: Keeps candidates inside the space.
        among: The trials from which the winner is chosen; all when None.
    """
    inside = trials if among is None else among
    chosen = finalists(inside, task, default, 1)
    if not chosen:
        return Simplified()
    if not bounds.rounds:
        return Simplified(config=chosen[0])
    search = [trial for trial in inside if trial.proposal.origin.phase is Phase.SEARCH]
    expected = {knob: max(0.0, effect) for knob, effect in effects(task, search, default, chosen[0]).items()}
    replay = _Replay(trials=trials, task=bind(task, trials, default), default=default, bounds=bounds, project=project, incumbent=chosen[0])
    unproven = replay.predicted(expected)
    replay.run(expected)
    is_shown = not replay.todo or replay.used > 0
    return Simplified(config=replay.incumbent, heat=replay.todo, without=replay.without(expected), unproven=() if is_shown else unproven)


def _halves(knobs: Sequence[str]) -> list[Group]:
    middle = len(knobs) // 2
    return [tuple(half) for half in (knobs[:middle], knobs[middle:]) if half]


@dataclass(kw_only=True)
class _Replay:
    """Goes through the heats again, one after another, up to the first that is not complete."""

    trials: Sequence[Trial]
    task: Task
    default: Config
    bounds: Simplify
    project: Project
    incumbent: Config
    todo: tuple[tuple[Proposal, ...], ...] = field(default=(), init=False)  # rounds of the first heat that is not complete
    used: int = field(default=0, init=False)  # trials of the heats before it
    good: list[Group] = field(default_factory=list, init=False)  # what the last heat showed not to be needed
    spare: list[str] = field(default_factory=list, init=False)  # knobs by which two candidates of the last heat differed, for nothing

    def run(self, expected: Mapping[str, float]) -> None:
        """Go as far as the stored trials lead.

        Args:
            expected: Predicted effect of each changed knob, at least zero; empty when nothing is predicted.
        """
        ranked = sorted(self._changed(), key=lambda knob: expected.get(knob, 0.0))  # ties as declared
        if len(ranked) < 2:
            return
        first = self._nested(ranked, expected)
        for groups in [[group] for group in first] if self.bounds.exact else [first]:
            adopted = self._heat(groups)
            if self.todo:
                return
            if adopted is not None:
                break
        simpler = self._changed()
        spare = tuple(knob for knob in self.spare if knob in simpler)
        queue: list[Group] = [(knob,) for knob in ranked if knob in simpler and knob not in spare]
        queue = [spare, *queue] if spare else queue if len(simpler) < len(ranked) else _halves(ranked)
        while queue and len(self._changed()) > 1:
            groups = queue[: self._fits(len(queue))]
            if not groups:
                # No room to measure it: what brought nothing when it was added to a simpler candidate goes back too; the final judges.
                self.incumbent = (self._candidate(queue[0]) if queue[0] == spare else None) or self.incumbent
                return
            adopted = self._heat(groups)
            if self.todo:
                return
            again = [group for group in groups if group in self.good and group != adopted]
            split = [half for group in groups if group not in self.good and len(group) > 1 for half in _halves(group)]
            groups_left = [tuple(knob for knob in group if knob in self._changed()) for group in (*again, *split, *queue[len(groups) :])]
            queue = [group for group in groups_left if group]

    def predicted(self, expected: Mapping[str, float]) -> tuple[Config, ...]:
        """The incumbent with the fewest changes that are predicted to bring half of the gain, and with those that bring most of it."""
        ranked = sorted(self._changed(), key=lambda knob: expected.get(knob, 0.0))
        if self.bounds.exact or len(ranked) < 2:
            return ()
        keeps = dict.fromkeys(self._needed(ranked, expected, share) for share in (HALF, EXPLAINED))
        candidates = (self._candidate(ranked[: len(ranked) - keep]) for keep in keeps if keep < len(ranked))
        return tuple(config for config in candidates if config is not None)

    @staticmethod
    def _needed(ranked: Sequence[str], expected: Mapping[str, float], share: float) -> int:
        """How many of the knobs that matter most are predicted to bring this share of the gain; all where nothing is predicted."""
        total, needed = sum(expected.values()), len(ranked)
        while total and needed > 1 and sum(expected[knob] for knob in ranked[1 - needed :]) >= share * total:
            needed -= 1
        return needed

    def without(self, expected: Mapping[str, float]) -> tuple[Config, ...]:
        """The incumbent without one of its changes, for those whose effect is not measured; none for a single change, which is the gain."""
        changed = self._changed()
        if self.bounds.exact or len(changed) < 2:
            return ()
        heats = [trial for trial in self.trials if trial.proposal.origin.phase is Phase.SIMPLIFY]  # not the final, which this is for
        gains = measured_gains(self.task, heats, self.default, self.incumbent)
        unknown = sorted((knob for knob in changed if knob not in gains), key=lambda knob: expected.get(knob, 0.0))
        return tuple(candidate for knob in unknown if (candidate := self._candidate([knob])) is not None)

    def _changed(self) -> list[str]:
        return [change.knob for change in differences(self.default, self.incumbent)]

    def _nested(self, ranked: Sequence[str], expected: Mapping[str, float]) -> list[Group]:
        """Groups to put back, each inside the one before: all but the one, two, three, five, ... knobs that matter most."""
        needed = self._needed(ranked, expected, EXPLAINED)
        keeps = [keep for keep in KEEPS if keep < len(ranked)]
        keeps = keeps[: self.bounds.trials if self.bounds.exact else self._fits(len(keeps))]
        if keeps and keeps[-1] < needed < len(ranked):
            keeps[-1] = needed
        return [tuple(ranked[: len(ranked) - keep]) for keep in keeps]

    def _rounds(self, configs: int) -> int:
        """Rounds of a heat of this many configurations."""
        return 1 if self.bounds.exact else max(self.bounds.rounds, 1 + math.ceil(FREEDOM / (configs - 1)))

    def _fits(self, size: int) -> int:
        """How many candidates of `wanted` one heat may have within the bounds."""
        if self.bounds.exact:
            return min(1, size, self.bounds.trials - self.used)
        rest = self.bounds.trials - self.used
        return max((count for count in range(1, size + 1) if (count + 1) * self._rounds(count + 1) <= rest), default=0)

    def _heat(self, groups: Sequence[Group]) -> Group | None:
        """Put each group back and compare; returns the group that was adopted. What is not measured yet goes to `todo`."""
        heat = {candidate: group for group in groups if (candidate := self._candidate(group)) is not None}
        self.good = []
        if not heat or not self._fits(len(heat)):
            return None
        self.todo = self._missing(list(heat))
        if self.todo:
            return None
        good = self._as_good(list(heat))
        self.good = [heat[config] for config in good]
        adopted = min(good, key=lambda config: len(differences(self.default, config)), default=None)
        self.incumbent = adopted or self.incumbent
        return None if adopted is None else heat[adopted]

    def _candidate(self, group: Sequence[str]) -> Config | None:
        """The incumbent with a group back at the default; None where that is not valid, changes something else, or failed before."""
        candidate = self.project(put_back(self.incumbent, self.default, group))
        before, after = (
            {change.knob: (change.best_absent, change.best) for change in differences(self.default, config)}
            for config in (self.incumbent, candidate)
        )
        earlier = [trial for trial in self.trials if trial.config == candidate and trial.proposal.origin.phase is not Phase.FINAL]
        failed = any(trial.measurement.status.failed for trial in earlier)  # a final keeps its finalists
        return candidate if after.items() < before.items() and after and not failed else None

    def _missing(self, candidates: list[Config]) -> tuple[tuple[Proposal, ...], ...]:
        """The rounds of a heat, where something of them is still to be measured."""
        field_ = [config for config in candidates if self._loss(config) is None] if self.bounds.exact else [self.incumbent, *candidates]
        if not field_:
            return ()
        names = tuple(sorted(config.key for config in field_))
        rounds = []
        for number in numbered(self.trials, Phase.SIMPLIFY, names, self._rounds(len(field_))):
            start = (number - 1) % len(field_)
            turn = [*field_[start:], *field_[:start]]
            rounds.append(tuple(self._proposal(config, number, names) for config in turn))
        stored = {(trial.config, trial.proposal.repeat) for trial in self.trials}
        if any((proposal.config, proposal.repeat) not in stored for proposals in rounds for proposal in proposals):
            return tuple(rounds)
        self.used += sum(map(len, rounds))
        return ()

    def _proposal(self, config: Config, number: int, names: tuple[str, ...]) -> Proposal:
        by = By.INCUMBENT if config == self.incumbent else By.SIMPLER
        return Proposal(config=config, origin=Origin(by=by, phase=Phase.SIMPLIFY, round=number, contenders=names), repeat=number)

    def _loss(self, config: Config) -> float | None:
        losses = [self.task.objective.loss(trial.measurement) for trial in self.trials if trial.config == config]
        return losses[-1] if losses else None

    def _as_good(self, candidates: list[Config]) -> list[Config]:
        """Those that are not worse than the incumbent beyond noise, the best first."""
        if self.bounds.exact:
            losses = {config: self._loss(config) for config in (self.incumbent, *candidates)}
            mine = losses[self.incumbent]
            return [config for config in candidates if mine is not None and (loss := losses[config]) is not None and loss <= mine]
        names = tuple(sorted(config.key for config in (self.incumbent, *candidates)))
        members = [trial for trial in self.trials if trial.proposal.origin.contenders == names]
        gains = {
            (duel.incumbent, duel.candidate): (duel.knobs, gain)
            for duel in duels(self.task, members, self.default)
            if duel.eligible and (gain := compare(self.task, duel.pairs, duel.noise, CONFIDENCE)).enough and not gain.worse
        }
        self.spare = [knobs[0] for knobs, _ in gains.values() if len(knobs) == 1]
        fine = {config: gains[self.incumbent, config][1].ratio or 0.0 for config in candidates if (self.incumbent, config) in gains}
        return sorted(fine, key=lambda config: -fine[config])


__all__ = ["ROUNDS", "Simplified", "Simplify", "simplify"]
