"""What a loop improves, and which causes it reasons about: as operators say it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from autosched.tune.formulas import Formula, read_formulas
from autosched.tune.measures import INTERMEDIATE, MEASURES, gain
from autoscout.common.text import suggestion
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.task import Direction, Guard, Limit, Objective

GUARDS = ("worst_slowdown", "longest_queue_s")
"""What a choice of policies must not be bought with: the group that is treated worst, and the job that waits longest."""
SLACK = 1.1
"""Times worse that a guard may be than under the policy in force: it rests on one group, or one job, of a few weeks."""
SHORT = {"time": "time_s", "fair": "fair_share"}
"""Goals by their short names."""


@dataclass(frozen=True, kw_only=True)
class Goal:
    """One metric to improve; for every goal but time, jobs must not take longer than under the published default.

    Attributes:
        metric: One of `MEASURES`, or an operator's own.
        formula: Of an operator's own.
        bounds: What settings must keep: limits, and guards over the default on the same jobs.
    """

    metric: str = "time_s"
    formula: Formula | None = None
    bounds: tuple[Limit | Guard, ...] = ()

    def __post_init__(self) -> None:
        if self.formula is None and self.metric not in MEASURES:
            raise _unknown(self.metric, ())

    @classmethod
    def of(cls, text: str, formulas: Iterable[Formula] = (), limits: Iterable[str] = ()) -> Goal:
        """`time`, `fair`, or a metric by its name, among those that an operator defines too, with limits such as `queue_s<=600` or
        `preemptions<=1.5x`.

        Raises:
            ConfigError: there is no metric of this name, or a limit that is none; all faults at once.
        """
        own = {formula.name: formula for formula in formulas}
        metric = SHORT.get(text, text)
        faults: list[Fault] = []
        if metric not in MEASURES and metric not in own:
            faults += _unknown(text, own).faults
        bounds = tuple(bound for limit in limits if (bound := _bound(limit, own, faults)) is not None)
        if faults:
            raise ConfigError(faults)
        return cls(metric=metric, formula=own.get(metric), bounds=bounds)

    @property
    def direction(self) -> Direction:
        """Which way is better."""
        return self.formula.direction if self.formula is not None else MEASURES[self.metric]

    @property
    def is_time(self) -> bool:
        return self.metric == "time_s"

    @property
    def is_fair(self) -> bool:
        return self.metric == "fair_share"

    def guarded(self, slack: float) -> Goal:
        """The same goal, which is not to be reached at the cost of fairness.

        Args:
            slack: Times worse than under the published default that the worst group and the longest wait may get.
        """
        return replace(self, bounds=(*self.bounds, *(Guard(metric=name, op="<=", times=slack) for name in GUARDS)))

    @property
    def needs_default(self) -> bool:
        """Whether what is better depends on what the default does to the same jobs."""
        return not self.is_time or any(isinstance(bound, Guard) for bound in self.bounds)

    def limits(self, default: Mapping[str, float]) -> tuple[Limit, ...]:
        """What the operator wants to be kept; `default` has the metrics of the published default on the same jobs."""
        return tuple(bound.limit(default[bound.metric]) if isinstance(bound, Guard) else bound for bound in self.bounds)

    def objective(self, default: Mapping[str, float]) -> Objective:
        """What is better, given the metrics of the published default on the same jobs."""
        limits = self.limits(default)
        if self.is_time:
            return Objective(metric=self.metric, limits=limits)
        time = Limit(metric="time_s", op="<=", value=default["time_s"] * 1.000001)
        return Objective(metric=self.metric, direction=self.direction, limits=(time, *limits))

    def gain(self, before: float, after: float) -> float:
        """How many times better the metric is after a change."""
        return gain(self.metric, before, after, self.direction)


def _bound(text: str, own: Iterable[str], faults: list[Fault]) -> Limit | Guard | None:
    """A limit or guard of an operator; None with a fault where it is none."""
    example = "Example: queue_s<=600, or preemptions<=1.5x of the default"
    try:
        bound = Guard.parse(text) if text.rstrip().endswith("x") else Limit.parse(text)
    except ConfigError as error:
        faults += [Fault(where="limits", value=repr(text[:80]), rule=fault.rule, fix=example) for fault in error.faults]
        return None
    names = (*(name for name in MEASURES if name != "fair_share"), *own)
    if bound.metric in names:
        return bound
    fix = suggestion(bound.metric, names) or example
    faults.append(Fault(where="limits", value=repr(text[:80]), rule=f"its metric must be one of {', '.join(names)}", fix=fix))
    return None


def _unknown(metric: str, own: Iterable[str]) -> ConfigError:
    names = (*SHORT, *(name for name in MEASURES if name not in SHORT.values()), *own)
    fix = suggestion(metric, names) or "Define it under metrics, by a formula"
    return ConfigError(Fault(where="goal", value=repr(metric), rule=f"must be one of {', '.join(names)}", fix=fix))


@dataclass(frozen=True, kw_only=True)
class Causes:
    """What an operator knows of causes and effects; the causal model learns the rest.

    Attributes:
        metrics: The intermediate ones, between settings and goal.
        edges: (from, to): a setting or metric that acts on a metric, whatever the data shows.
        no_edges: Likewise, that does not.
        formulas: Metrics that the operator defines; each may be a goal, too.
    """

    metrics: tuple[str, ...] = INTERMEDIATE
    edges: tuple[tuple[str, str], ...] = ()
    no_edges: tuple[tuple[str, str], ...] = ()
    formulas: tuple[Formula, ...] = ()

    @classmethod
    def of(
        cls,
        metrics: Iterable[str] = (),
        edges: Iterable[str] = (),
        no_edges: Iterable[str] = (),
        formulas: Mapping[str, str] | None = None,
    ) -> Causes:
        """From text: names of metrics (the usual ones and the operator's own where there are none), edges as `FROM -> TO`, and formulas by
        name.

        Raises:
            ConfigError: all faults at once.
        """
        faults: list[Fault] = []
        own: tuple[Formula, ...] = ()
        try:
            own = read_formulas(formulas or {}, tuple(MEASURES))
        except ConfigError as error:
            faults += error.faults
        defined = tuple(formulas or {})
        names = tuple(metrics) or (*INTERMEDIATE, *defined)
        for name in names:
            if name == "fair_share":
                rule = "is worked out for a goal only, because it takes long"
                faults.append(Fault(where="causes", field="metrics", value=name, rule=rule, fix="Leave it out"))
            elif name not in MEASURES and name not in defined:
                rule = f"no such metric; there are {', '.join((*MEASURES, *defined))}"
                fix = suggestion(name, (*MEASURES, *defined))
                faults.append(Fault(where="causes", field="metrics", value=name, rule=rule, fix=fix))
        causes = cls(metrics=names, edges=_edges(edges, "edges", faults), no_edges=_edges(no_edges, "no_edges", faults), formulas=own)
        for field, pairs in (("edges", causes.edges), ("no_edges", causes.no_edges)):
            for one, other in pairs:
                if other not in names:
                    rule = f"must end at an intermediate metric: {', '.join(names)}"
                    faults.append(Fault(where="causes", field=field, value=f"{one} -> {other}", rule=rule, fix=suggestion(other, names)))
        if faults:
            raise ConfigError(faults)
        return causes

    def check(self, knobs: Iterable[str]) -> None:
        """Refuse edges that begin nowhere.

        Raises:
            ConfigError: all faults at once.
        """
        starts = (*knobs, *self.metrics)
        faults = [
            Fault(where="causes", field="edges", value=f"{one} -> {other}", rule="begins at no knob or metric", fix=suggestion(one, starts))
            for one, other in (*self.edges, *self.no_edges)
            if one not in starts
        ]
        if faults:
            raise ConfigError(faults)


def _edges(texts: Iterable[str], field: str, faults: list[Fault]) -> tuple[tuple[str, str], ...]:
    pairs = []
    for text in texts:
        match = re.fullmatch(r"\s*(\w+)\s*->\s*(\w+)\s*", text)
        if match:
            pairs.append((match[1], match[2]))
        else:
            faults.append(
                Fault(where="causes", field=field, value=repr(text), rule="must read FROM -> TO", fix="Example: queues -> queue_s")
            )
    return tuple(pairs)


__all__ = ["SHORT", "Causes", "Goal"]
