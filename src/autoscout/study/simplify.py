"""Simplify: which of the winner's changes does the gain not need?

A search changes many knobs at once, and some only by chance. Where answers are exact, changes go back to the default one after another, as
far as nothing gets worse. Where they are noisy, the winner is screened between search and final (`study/heats.py`), and a change stays
only if it was shown to bring something: to the goal, or to a limit that is not kept without it. The final then meets the answer, the
winner as the search left it, and the answer without each change that no heat has measured.

Nothing is remembered: `simplify` works out from the stored trials how far it is, so that a study that was killed resumes here too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autoscout.analysis.contributions import effects, measured_gains
from autoscout.core.config import Config
from autoscout.core.guards import bind
from autoscout.core.origin import By, Origin, Phase
from autoscout.core.task import Objective, Task
from autoscout.core.trial import Proposal, Trial
from autoscout.study.final import Simplified, finalists, numbered, winner
from autoscout.study.heats import EXPLAINED, Heats, needed_for
from autoscout.study.lattice import Lattice, Project

HALF = 0.5
"""The same for the simpler of the two that take part in a final before which there was no time to simplify."""


@dataclass(frozen=True, kw_only=True)
class Simplify:
    """How much may be measured, in `trials`; none: off. `exact`: a single measurement of a configuration tells all."""

    trials: int = 0
    exact: bool = False


def simplify(
    trials: Sequence[Trial], task: Task, default: Config, bounds: Simplify, project: Project, among: Sequence[Trial] | None = None
) -> Simplified:
    """Work out from the stored trials what is shown and what to measure next.

    Args:
        trials: Everything stored.
        task: What is tuned.
        default: Where knobs go back to: what the study compares with.
        bounds: How much may be measured.
        project: Keeps candidates inside the space.
        among: The trials from which the winner is chosen; all when None.
    """
    inside = trials if among is None else among
    top = winner(inside, task, default)
    if top is None:
        return Simplified()
    if not bounds.trials:
        return Simplified(config=top)
    search = [trial for trial in inside if trial.proposal.origin.phase is Phase.SEARCH]
    bound = bind(task, trials, default)
    lattice = Lattice(trials=trials, default=default, project=project, top=top)
    simplified = _simplified(trials, search, bound, lattice, bounds) if len(lattice.changed) > 1 else Simplified(config=top)
    best = next(iter(finalists(inside, task, default, 1)), top)
    if best == top or bounds.exact:
        return simplified
    return replace(simplified, bare=_bare(search, bound, replace(lattice, top=best)))


def _simplified(trials: Sequence[Trial], search: Sequence[Trial], task: Task, lattice: Lattice, bounds: Simplify) -> Simplified:
    """The winner, of two changes or more, as far as the stored trials tell."""
    top = lattice.top
    expected = _expected(search, task, lattice)
    if bounds.exact:
        return _exact(trials, task, lattice, bounds.trials, expected)
    heats = Heats(trials=trials, task=task, lattice=lattice, expected=expected, most=bounds.trials)
    judge, todo = heats.run()
    if judge is None and todo:
        return Simplified(config=top, heat=todo, unproven=_predicted(lattice, expected))
    config, lenient = (judge.answer(), judge.lenient()) if judge else (top, None)  # no room for any heat: the final shows what it can
    return Simplified(config=config, lenient=lenient, heat=todo, without=_without(trials, task, lattice, config, expected))


def _expected(search: Sequence[Trial], task: Task, lattice: Lattice) -> dict[str, float]:
    """What each change of the winner is predicted to bring to the goal, at least zero."""
    return {knob: max(0.0, effect) for knob, effect in effects(task, search, lattice.default, lattice.top).items()}


def _ranked(lattice: Lattice, expected: Mapping[str, float]) -> list[str]:
    """The winner's changes, the least important first; ties as declared."""
    return sorted(lattice.changed, key=lambda knob: expected.get(knob, 0.0))


def _bare(search: Sequence[Trial], task: Task, lattice: Lattice) -> tuple[Config, ...]:
    """The winner with the fewest changes that are predicted to bring half of the gain, and half of what a limit needs that the default
    breaks; and with those that bring most of both."""
    defaults = [trial.measurement for trial in search if trial.config == lattice.default and trial.ok]
    broken = [limit for limit in task.objective.limits if not all(limit.holds(one) for one in defaults)]
    aims = [task.objective, *(Objective(metric=limit.metric, direction=limit.direction) for limit in broken)]
    predicted = [_expected(search, replace(task, objective=aim), lattice) for aim in aims]
    candidates = []
    for share in (HALF, EXPLAINED):
        needed: set[str] = set()
        for expected in predicted:
            ranked = _ranked(lattice, expected)
            needed |= set(ranked[len(ranked) - needed_for(ranked, expected, share) :])
        candidates.append(lattice.without(lattice.top, [knob for knob in lattice.changed if knob not in needed]))
    return tuple(config for config in dict.fromkeys(candidates) if config is not None)


def _exact(trials: Sequence[Trial], task: Task, lattice: Lattice, most: int, expected: Mapping[str, float]) -> Simplified:
    """One group after another goes back: all but what is predicted to matter, then change by change."""
    ranked = _ranked(lattice, expected)
    here, used = lattice.top, 0
    loss = _losses(trials, task)
    count = needed_for(ranked, expected, EXPLAINED)
    groups = [ranked[: len(ranked) - count], *([knob] for knob in ranked)] if count < len(ranked) - 1 else [[knob] for knob in ranked]
    for group in groups:
        candidate = lattice.without(here, [knob for knob in group if knob in lattice.changes(here)])
        if candidate is None or candidate == lattice.default or used == most:
            continue
        if candidate not in loss:
            return Simplified(config=here, heat=((_single(trials, candidate),),))
        used += any(trial.config == candidate and trial.proposal.origin.phase is Phase.SIMPLIFY for trial in trials)
        here = candidate if loss[candidate] <= loss[here] else here
    return Simplified(config=here)


def _losses(trials: Sequence[Trial], task: Task) -> dict[Config, float]:
    return {trial.config: task.objective.loss(trial.measurement) for trial in trials}


def _single(trials: Sequence[Trial], config: Config) -> Proposal:
    number = numbered(trials, Phase.SIMPLIFY, (config.key,), 1)[0]
    origin = Origin(by=By.SIMPLER, phase=Phase.SIMPLIFY, round=number, contenders=(config.key,))
    return Proposal(config=config, origin=origin, repeat=number)


def _predicted(lattice: Lattice, expected: Mapping[str, float]) -> tuple[Config, ...]:
    """The winner with the fewest changes that are predicted to bring half of the gain, and with those that bring most of it."""
    ranked = _ranked(lattice, expected)
    keeps = dict.fromkeys(needed_for(ranked, expected, share) for share in (HALF, EXPLAINED))
    candidates = (lattice.without(lattice.top, ranked[: len(ranked) - keep]) for keep in keeps if keep < len(ranked))
    return tuple(config for config in candidates if config is not None)


def _without(trials: Sequence[Trial], task: Task, lattice: Lattice, config: Config, expected: Mapping[str, float]) -> tuple[Config, ...]:
    """A configuration without one of its changes, for those whose effect is not measured; none for a single change, which is the gain."""
    changed = lattice.changes(config)
    if len(changed) < 2:
        return ()
    heats = [trial for trial in trials if trial.proposal.origin.phase is Phase.SIMPLIFY]  # not the final, which this is for
    gains = measured_gains(task.objective.metric, task.objective.direction, heats, lattice.default, config)
    unknown = sorted((knob for knob in changed if knob not in gains), key=lambda knob: expected.get(knob, 0.0))
    candidates = (lattice.without(config, [knob]) for knob in unknown)
    return tuple(candidate for candidate in candidates if candidate is not None)


__all__ = ["Project", "Simplified", "Simplify", "simplify"]
