"""Searcher `grid`: all combinations of candidate values, in stages, as DeepSpeed's autotuning searches."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from autoscout.common.templates import holes, resolve
from autoscout.common.text import suggestion
from autoscout.core.config import Config, Value
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.names import Names
from autoscout.core.origin import Origin
from autoscout.core.protocols import Searcher
from autoscout.core.seeds import stream
from autoscout.core.task import Task
from autoscout.core.trial import Fidelity, Proposal, Trial
from autoscout.search.grid.plan import Experiment, Experiments, Plan, coarse
from autoscout.search.grid.rules import BUILT_IN, Rule
from autoscout.space import Space

SHUFFLED = 100_000
"""Most configurations of a stage that can be shuffled: they must be listed first."""

_NOTHING = Config()


@dataclass(frozen=True, kw_only=True)
class GridOptions:
    """What `grid` enumerates, and in which order.

    Attributes:
        points: How many values of a knob with a range, plus its default; lists are kept whole.
        values: Candidate values by knob, instead of the coarse ones.
        stages: Groups of knobs, searched one after the other: the rest at its default, earlier groups at the best found. Knobs in no
            group stay at their default. Empty for one stage of all knobs.
        template: A tree with `$knob` holes that the system is configured by; combinations that fill it alike are one experiment.
        rules: Rules that whole configurations must keep, in addition to the built-in ones; one with the name of a built-in one replaces it.
        without_rules: Names of built-in rules to leave out.
        shuffle: Propose a stage in random order, so that a budget smaller than the grid does not see one corner only.
    """

    points: int = 3
    values: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    stages: tuple[tuple[str, ...], ...] = ()
    template: Mapping[str, Any] | None = None
    rules: tuple[Rule, ...] = ()
    without_rules: tuple[str, ...] = ()
    shuffle: bool = False

    def __post_init__(self) -> None:
        faults = []
        if self.points < 1:
            faults.append(Fault(where="grid", field="points", value=repr(self.points), rule="must be at least 1"))
        named = [name for group in self.stages for name in group]
        for name in sorted({name for name in named if named.count(name) > 1}):
            faults.append(Fault(where="grid", field="stages", value=name, rule="a knob may be in one stage only"))
        if any(not group for group in self.stages):
            faults.append(Fault(where="grid", field="stages", rule="a stage names at least one knob"))
        for name, values in self.values.items():
            if not values:
                faults.append(Fault(where="grid", field=f"values.{name}", rule="a list of candidates must not be empty"))
        for name in self.without_rules:
            if name not in BUILT_IN:
                fix = suggestion(name, BUILT_IN)
                faults.append(Fault(where="grid", field="without_rules", value=name, rule="no built-in rule has this name", fix=fix))
        if faults:
            raise ConfigError(faults)


class GridSearcher(Searcher):
    """Every combination of a few values of each knob, in order; staged, so that few combinations are enough.

    Nothing is proposed twice, and nothing that was measured before, by whomever. A stage is over when all its configurations have been
    told; its winner, by the told trials alone, fixes its knobs for the later ones. A stage in which nothing succeeded settles
    nothing: its knobs are searched again together with those of the next.
    """

    ends_by_itself = True

    def __init__(self, space: Space, task: Task, seed: int = 0, options: GridOptions | None = None) -> None:
        self._space = space
        self._task = task
        self._seed = seed
        self._options = options or GridOptions()
        _check(self._options, space)
        knobs = space.knobs
        self._candidates = {name: _candidates(name, self._options, space) for name in knobs}
        rules = {**BUILT_IN, **{rule.name: rule for rule in self._options.rules}}
        enforced = [rule for name, rule in rules.items() if name not in self._options.without_rules]
        self._experiments = Experiments(self._options.template, enforced, space.facts)
        self._stages = self._options.stages or (tuple(knobs),)
        self._names = Names(knobs)
        self._plans: dict[tuple[frozenset[str], Config, Config], list[Experiment] | Plan] = {}
        self._losses: dict[str, dict[Fidelity, list[float]]] = {}  # by what is one experiment

    def ask(self, n: int, given: Config = _NOTHING, pending: Sequence[Proposal] = ()) -> list[Proposal]:
        if n < 1 or not self._space.feasible(given):
            return []
        waiting = {self._experiments.identity(proposal.config) for proposal in pending} - self._losses.keys()
        for stage, plan in self._stages_of(given):
            free = (config for identity, config in plan if identity not in self._losses and identity not in waiting)
            configs = list(islice(free, n))
            if configs or any(identity in waiting for identity, _ in plan):
                return [Proposal(config=config, origin=self._origin(stage, config)) for config in configs]
        return []

    def tell(self, trials: Sequence[Trial]) -> None:
        for trial in trials:
            losses = self._losses.setdefault(self._experiments.identity(trial.config), {})
            losses.setdefault(trial.measurement.fidelity, []).append(self._task.objective.loss(trial.measurement))

    def _origin(self, stage: int, config: Config) -> Origin:
        notes: dict[str, Any] = {"name": self._names.name(config)}
        if len(self._stages) > 1:
            notes |= {"stage": stage, "knobs": list(self._stages[stage])}
        return Origin(by="grid", notes=notes)

    def _stages_of(self, given: Config) -> Iterator[tuple[int, Sequence[Experiment] | Plan]]:
        """The stages in order, each fixed by the winners before it; the caller stops at the first that is not finished."""
        base = self._space.project(self._space.default(), given)
        fixed, carried, settled = given, frozenset[str](), frozenset[str]()
        for stage, group in enumerate(self._stages):
            open_knobs = carried | set(group)
            plan = self._plan(stage, open_knobs, fixed, base)
            yield stage, plan
            winner = self._winner(plan)
            if winner is None:
                carried = open_knobs
                continue
            settled, carried, base = settled | open_knobs, frozenset(), winner
            fixed = given.extend(winner.only(settled))

    def _plan(self, stage: int, open_knobs: frozenset[str], fixed: Config, base: Config) -> Sequence[Experiment] | Plan:
        key = (open_knobs, fixed, base)
        if key not in self._plans:
            strict = self._options.values
            plan = Plan(self._space, self._candidates, strict, open_knobs, fixed, base, self._experiments)
            self._plans[key] = self._shuffled(stage, plan) if self._options.shuffle else plan
        return self._plans[key]

    def _shuffled(self, stage: int, plan: Plan) -> list[Experiment]:
        listed = list(islice(plan, SHUFFLED + 1))
        if len(listed) > SHUFFLED:
            rule = f"a stage of more than {SHUFFLED} configurations cannot be shuffled"
            raise ConfigError(
                Fault(where="grid", field="shuffle", rule=rule, fix="Lower points, list fewer values, or split it into stages")
            )
        return [listed[index] for index in stream(self._seed, "grid", stage).permutation(len(listed))]

    def _winner(self, plan: Sequence[Experiment] | Plan) -> Config | None:
        """The best told configuration of a stage: highest fidelity, lowest median loss, earliest in the plan."""
        best: tuple[int, float, int] | None = None
        winner = None
        for position, (identity, config) in enumerate(plan):
            answers = self._losses.get(identity, {})
            measured = {fidelity: losses for fidelity, losses in answers.items() if fidelity > Fidelity.PREDICTED}
            if not measured:
                continue
            fidelity = max(measured)
            rank = (-int(fidelity), statistics.median(measured[fidelity]), position)
            if rank[1] != float("inf") and (best is None or rank < best):
                best, winner = rank, config
        return winner


def _candidates(name: str, options: GridOptions, space: Space) -> tuple[Value, ...]:
    knob = space.knobs[name]
    if len(knob.values) == 1:  # pinned, whatever was listed
        return tuple(knob.values)
    return tuple(options.values[name]) if name in options.values else coarse(knob, options.points)


def _check(options: GridOptions, space: Space) -> None:
    """Refuse options that do not fit the space, all faults at once."""
    faults = []
    named = [("stages", name) for group in options.stages for name in group] + [(f"values.{name}", name) for name in options.values]
    for field_name, name in named:
        if name not in space.knobs:
            faults.append(Fault(where="grid", field=field_name, value=name, rule="no such knob", fix=suggestion(name, space.knobs)))
    for name, values in options.values.items():
        knob = space.knobs.get(name)
        for value in values if knob is not None else ():
            if knob is not None and len(knob.values) > 1 and knob.position(value) is None:
                fix = f"The nearest is {knob.nearest(value)!r}"
                faults.append(
                    Fault(where="grid", field=f"values.{name}", value=repr(value), rule="the knob does not take this value", fix=fix)
                )
    names = {*space.knobs, *space.facts}
    for name in sorted(holes(options.template)) if options.template is not None else ():
        if resolve(name, names) is None:
            faults.append(Fault(where="grid", field="template", value=f"${name}", rule="no such knob", fix=suggestion(name, names)))
    if faults:
        raise ConfigError(faults)


__all__ = ["GridSearcher"]
