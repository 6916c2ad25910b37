"""The configurations of a grid, in order: candidate values, combinations that are valid, duplicates and broken rules left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from autoscout.common.templates import canonical, fill, prune, unflatten
from autoscout.core.config import Config, Value
from autoscout.core.log import logger
from autoscout.search.grid.rules import Rule
from autoscout.space import Knob, Space

log = logger(__name__)

Experiment = tuple[str, Config]
"""What makes an experiment different from others, and the configuration that runs it."""


def coarse(knob: Knob, points: int) -> tuple[Value, ...]:
    """A few values of a knob with a range, ends included, evenly spread (by ratio on a log scale), and its default.

    Lists that a person wrote, categories and booleans are kept whole.
    """
    values = knob.values
    if not knob.ordered or "values" in knob.spec() or len(values) <= points:
        return tuple(values)
    if points == 1:
        return (knob.default,)
    low, high = values[0], values[-1]
    if knob.log and isinstance(low, (int, float)) and isinstance(high, (int, float)) and low > 0:
        ratio = (high / low) ** (1 / (points - 1))
        chosen = [knob.nearest(low * ratio**step) for step in range(points)]
    else:
        chosen = [values[round(step * (len(values) - 1) / (points - 1))] for step in range(points)]
    positions = {knob.position(value) or 0 for value in (*chosen, knob.default)}
    return tuple(values[position] for position in sorted(positions))


class Experiments:
    """What combinations amount to: the filled template decides which are the same, the rules which cannot run.

    Args:
        template: A tree with `$knob` holes; None when the knobs themselves are the configuration.
        rules: What a whole configuration must keep.
        facts: What the template may read in addition to knobs.
    """

    def __init__(self, template: Mapping[str, Any] | None, rules: Sequence[Rule], facts: Mapping[str, Value]) -> None:
        self._template = template
        self._facts = facts
        self._pruned = None if template is None else prune(template)
        self._rules = tuple(rules)
        self._reported: set[str] = set()

    def allows(self, config: Config) -> bool:
        """Whether all rules hold; the first configuration that breaks a rule is logged."""
        tree = unflatten(config) if self._template is None else fill(self._template, {**self._facts, **config})
        for rule in self._rules:
            if not rule.holds(tree):
                if rule.name not in self._reported:
                    self._reported.add(rule.name)
                    log.info("rule %s leaves out %s and its like: %s", rule.name, config, rule.why)
                return False
        return True

    def identity(self, config: Config) -> str:
        """Equal for configurations that are one experiment."""
        return config.canonical if self._pruned is None else canonical(fill(self._pruned, {**self._facts, **config}))


class Plan:
    """The configurations of one stage, worked out only as far as somebody looks.

    Open knobs take their candidate values; all others stay as near to `base` as the constraints let them.

    Args:
        space: Where configurations come from.
        candidates: Values by knob.
        strict: Knobs whose candidates a person listed; the others move to the nearest value that the constraints allow.
        open_knobs: Those that vary.
        fixed: What every configuration holds.
        base: What the knobs that do not vary should be.
    """

    def __init__(
        self,
        space: Space,
        candidates: Mapping[str, Sequence[Value]],
        strict: Iterable[str],
        open_knobs: Iterable[str],
        fixed: Config,
        base: Mapping[str, Value],
        experiments: Experiments,
    ) -> None:
        self._space = space
        self._candidates = candidates
        self._strict = frozenset(strict)
        self._open = frozenset(open_knobs) - set(fixed)
        needed = self._open | {ancestor for name in self._open for ancestor in space.ancestors(name)}
        self._order = tuple(name for name in space.knobs if name in needed and name not in fixed)
        self._base = base
        self._experiments = experiments
        self._listed: list[Experiment] = []
        self._rest = self._distinct(self._walk(fixed, 0) if space.feasible(fixed) else iter(()))

    def __iter__(self) -> Iterator[Experiment]:
        """All experiments; what was worked out once is remembered."""
        position = 0
        while True:
            if position == len(self._listed):
                more = list(islice(self._rest, 1))
                if not more:
                    return
                self._listed += more
            yield self._listed[position]
            position += 1

    def _walk(self, partial: Config, depth: int) -> Iterator[Config]:
        if depth == len(self._order):
            yield self._space.project(self._base, partial)
            return
        name = self._order[depth]
        choices = self._space.choices(name, partial)
        if not choices:  # inactive here
            yield from self._walk(partial, depth + 1)
        for value in self._values(name, choices):
            yield from self._walk(partial.extend({name: value}), depth + 1)

    def _values(self, name: str, choices: Sequence[Value]) -> Sequence[Value]:
        if not choices:
            return ()
        knob = self._space.knobs[name]
        if name not in self._open:
            return (knob.nearest(self._base.get(name, knob.default), choices),)
        allowed = {(type(value), value) for value in choices}
        if name in self._strict or not knob.ordered:
            return [value for value in self._candidates[name] if (type(value), value) in allowed]
        return list(dict.fromkeys(knob.nearest(value, choices) for value in self._candidates[name]))

    def _distinct(self, configs: Iterable[Config]) -> Iterator[Experiment]:
        identities: set[str] = set()
        for config in configs:
            identity = self._experiments.identity(config)
            if identity not in identities and self._experiments.allows(config):
                identities.add(identity)
                yield identity, config
