"""Task: what is tuned. Workload, hardware, software, objective and budget."""

from __future__ import annotations

import hashlib
import json
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from autoscout.core.config import Value
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.trial import Measurement, Status


class Direction(StrEnum):
    """Which way is better."""

    MINIMIZE = "minimize"
    MAXIMIZE = "maximize"


_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_SHORT = {"le": "<=", "ge": ">=", "lt": "<", "gt": ">"}


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A bound that a good configuration must keep (an SLO): `p95_ttft_ms <= 500`.

    Attributes:
        metric: What is bounded.
        op: One of <=, >=, <, >.
        value: The bound.
        guard: The guard that became this limit; empty for a limit of the user.
    """

    metric: str
    op: str
    value: float
    guard: str = ""

    @classmethod
    def parse(cls, text: str) -> Limit:
        """Read `p95_ttft_ms<=500` or the form `ttft_ms:p95:le:500`."""
        match = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*(<=|>=|<|>)\s*([-+.\deE]+)\s*", text)
        parts = text.strip().split(":")
        try:
            if match:
                return cls(metric=match[1], op=match[2], value=float(match[3]))
            if len(parts) == 4:
                op = _SHORT.get(parts[2], parts[2])
                if op in _OPERATORS:
                    return cls(metric=f"{parts[1]}_{parts[0]}", op=op, value=float(parts[3]))
        except ValueError:
            pass
        raise ConfigError(
            Fault(
                where="slo",
                value=repr(text),
                rule="a limit reads METRIC<=NUMBER (also >=, <, >) or METRIC:STAT:le:NUMBER",
                fix="Example: --slo 'p95_ttft_ms<=500'",
            )
        )

    @property
    def direction(self) -> Direction:
        """Which way is better."""
        return Direction.MINIMIZE if self.op.startswith("<") else Direction.MAXIMIZE

    def holds(self, measurement: Measurement) -> bool:
        """Whether the measurement keeps this limit; a metric that was not reported does not."""
        value = measurement.metrics.get(self.metric)
        return value is not None and self.allows(value)

    def allows(self, value: float) -> bool:
        """Whether a value keeps this limit."""
        return _OPERATORS[self.op](value, self.value)

    def __str__(self) -> str:
        return f"{self.metric}{self.op}{_digits(self.value)}"


def _digits(value: float) -> str:
    """Every digit: the text of limits and guards is what stores and files keep."""
    return repr(value).removesuffix(".0")


@dataclass(frozen=True, kw_only=True)
class Guard:
    """A limit relative to the default's own value: `p99_itl_ms <= 1.2x`. See `autoscout.core.guards`."""

    metric: str
    op: str
    times: float

    @classmethod
    def parse(cls, text: str) -> Guard:
        """Read `p99_itl_ms<=1.2x`."""
        match = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*(<=|>=|<|>)\s*(\d+\.?\d*|\.\d+)\s*x\s*", text)
        if match and float(match[3]) > 0:
            return cls(metric=match[1], op=match[2], times=float(match[3]))
        rule = "a guard reads METRIC<=FACTORx (also >=, <, >), relative to the default, with a factor above zero"
        raise ConfigError(Fault(where="guard", value=repr(text), rule=rule, fix="Example: --guard 'p99_itl_ms<=1.2x'"))

    def limit(self, default: float) -> Limit:
        """The absolute limit, given what the default measured."""
        return Limit(metric=self.metric, op=self.op, value=default * self.times, guard=str(self))

    def __str__(self) -> str:
        return f"{self.metric}{self.op}{_digits(self.times)}x"


@dataclass(frozen=True, kw_only=True)
class Goal:
    """A number to improve, and which way is better."""

    metric: str
    direction: Direction = Direction.MINIMIZE

    @classmethod
    def parse(cls, text: str) -> tuple[str, Direction | None]:
        """Read `p95_ttft_ms` or `score:maximize`: the metric, and the direction where one is given."""
        match = re.fullmatch(r"\s*([^\s:]+)\s*(?::\s*(minimize|maximize)\s*)?", text)
        if match:
            return match[1], Direction(match[2]) if match[2] else None
        rule = "a goal reads METRIC, or METRIC:minimize or METRIC:maximize"
        raise ConfigError(Fault(where="goal", field="metrics", value=repr(text), rule=rule, fix="Example: --metric score:maximize"))

    @property
    def sign(self) -> float:
        """What makes the metric a loss."""
        return 1.0 if self.direction is Direction.MINIMIZE else -1.0

    def __str__(self) -> str:
        return f"{self.metric}:{self.direction.value}"


MOST_GOALS = 4
"""Goals that one study can have: the points of a front grow with every goal, and beyond a few everything is on it."""


@dataclass(frozen=True, kw_only=True)
class Objective:
    """The number to improve, which way, and the limits to keep while doing so.

    Attributes:
        metric: The number.
        direction: Which way is better.
        limits: Must hold; those that guards became carry the guard's text.
        guards: Limits relative to the default. They bind only as limits, once the default was measured: see `bound`.
        also: Further goals. With any, a study looks for the front: the configurations of which none is better in every goal.
    """

    metric: str
    direction: Direction = Direction.MINIMIZE
    limits: tuple[Limit, ...] = ()
    guards: tuple[Guard, ...] = ()
    also: tuple[Goal, ...] = ()

    @property
    def several(self) -> bool:
        """Whether there is more than one goal."""
        return bool(self.also)

    @property
    def goals(self) -> tuple[Goal, ...]:
        """Every goal, the first is that of `metric`."""
        return (Goal(metric=self.metric, direction=self.direction), *self.also)

    def only(self, goal: Goal) -> Objective:
        """With one goal in the place of all, and the same limits."""
        return replace(self, metric=goal.metric, direction=goal.direction, also=())

    def bound(self, default: Mapping[str, float]) -> Objective:
        """With every guard as an absolute limit, where `default`, the metrics of the default, has its metric."""
        own = tuple(limit for limit in self.limits if not limit.guard)
        absolute = tuple(guard.limit(default[guard.metric]) for guard in self.guards if guard.metric in default)
        return replace(self, limits=(*own, *absolute))

    def loss(self, measurement: Measurement) -> float:
        """The cost searchers minimise: the metric (negated when maximised), infinite for a failure or a broken limit."""
        return self.losses(measurement)[0]

    def losses(self, measurement: Measurement) -> tuple[float, ...]:
        """The loss by each goal; all infinite for a failure, a broken limit, or where the metric of any goal was not reported."""
        if not self.also:  # asked of every trial many times over
            value = measurement.metrics.get(self.metric) if measurement.ok else None
            if value is None or (self.limits and not all(limit.holds(measurement) for limit in self.limits)):
                return (math.inf,)
            return (1.0 * value if self.direction is Direction.MINIMIZE else -1.0 * value,)
        values = [measurement.metrics.get(goal.metric) for goal in self.goals]
        if not measurement.ok or None in values or not all(limit.holds(measurement) for limit in self.limits):
            return (math.inf,) * len(values)
        return tuple(goal.sign * value for goal, value in zip(self.goals, values, strict=True) if value is not None)

    def least_loss(self, measurement: Measurement) -> float:
        """The loss, or for a bounded measurement what its loss is at least; infinite where it certainly breaks a limit."""
        if measurement.status is not Status.BOUNDED:
            return self.loss(measurement)
        bounds = measurement.bounds
        broken = any(limit.metric in bounds and not limit.allows(bounds[limit.metric]) for limit in self.limits)
        if broken or self.several or self.metric not in bounds:  # a bound on one goal says nothing about the front
            return math.inf
        return bounds[self.metric] if self.direction is Direction.MINIMIZE else -bounds[self.metric]

    def value(self, measurement: Measurement) -> float | None:
        """The metric as a person reads it, whether or not limits hold; None when it was not reported."""
        return measurement.metrics.get(self.metric) if measurement.ok else None

    def better(self, one: float, other: float) -> bool:
        """Whether metric value `one` beats `other`."""
        return one < other if self.direction is Direction.MINIMIZE else one > other

    def gain(self, reference: float, value: float) -> float:
        """How many times better `value` is than `reference` (1.25 = 25 % better), whatever the direction."""
        above, below = (reference, value) if self.direction is Direction.MINIMIZE else (value, reference)
        return above / below if below else math.inf


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a study may spend; whichever runs out first ends it. None is no bound."""

    trials: int | None = None
    wall_s: float | None = None
    cost_s: float | None = None  # sum of the trials' own measured cost
    failures: int | None = None  # consecutive failures after which something is broken rather than unlucky
    patience: int | None = None  # trials of the search in a row that improve nothing

    def __post_init__(self) -> None:
        faults = [
            Fault(where="budget", field=name, value=repr(value), rule="a budget must be above zero", fix="Leave it out for no bound")
            for name, value in asdict(self).items()
            if value is not None and value <= 0
        ]
        if faults:
            raise ConfigError(faults)


@dataclass(frozen=True, kw_only=True)
class Task:
    """Everything a result depends on besides the config, and the budget for finding it.

    Attributes:
        system: Name of the backend ("llamacpp", "command", "megatron").
        workload: The load: model, prompt lengths, concurrency, batch, command template.
        hardware: The machine: GPUs, cores, memory.
        software: Versions that matter to the result.
        objective: What to improve.
        budget: What may be spent; not part of the task's identity.
    """

    system: str
    objective: Objective
    workload: Mapping[str, Any] = field(default_factory=dict)
    hardware: Mapping[str, Any] = field(default_factory=dict)
    software: Mapping[str, Any] = field(default_factory=dict)
    budget: Budget = field(default_factory=Budget)

    @property
    def facts(self) -> dict[str, Value]:
        """Scalars of workload and hardware, for constraints (`tp * pp * dp == gpus`) and for comparing tasks."""
        facts = self.workload.get("facts")
        merged = {**self.software, **self.hardware, **self.workload, **(facts if isinstance(facts, Mapping) else {})}
        return {name: value for name, value in merged.items() if isinstance(value, (bool, int, float, str))}

    @property
    def key(self) -> str:
        """Sixteen hex digits naming everything but the budget."""
        data = {name: value for name, value in self.to_json().items() if name != "budget"}
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        return {
            "system": self.system,
            "workload": dict(self.workload),
            "hardware": dict(self.hardware),
            "software": dict(self.software),
            "objective": {
                "metric": self.objective.metric,
                "direction": self.objective.direction.value,
                "limits": [str(limit) for limit in self.objective.limits if not limit.guard],
                **({"guards": list(map(str, self.objective.guards))} if self.objective.guards else {}),
                **({"also": list(map(str, self.objective.also))} if self.objective.also else {}),
            },
            "budget": {name: value for name, value in asdict(self.budget).items() if value is not None},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Task:
        objective = data["objective"]
        further = [Goal.parse(text) for text in objective.get("also", [])]
        return cls(
            system=data["system"],
            workload=dict(data.get("workload", {})),
            hardware=dict(data.get("hardware", {})),
            software=dict(data.get("software", {})),
            objective=Objective(
                metric=objective["metric"],
                direction=Direction(objective.get("direction", "minimize")),
                limits=tuple(Limit.parse(text) for text in objective.get("limits", [])),
                guards=tuple(Guard.parse(text) for text in objective.get("guards", [])),
                also=tuple(Goal(metric=metric, direction=better or Direction.MINIMIZE) for metric, better in further),
            ),
            budget=Budget(**data.get("budget", {})),
        )


def similarity(one: Task, other: Task) -> float:
    """How alike two tasks are, 0 to 1: same system and metric required, then the share of facts that agree.

    Numbers agree by their ratio (8 and 16 GPUs: 0.5), everything else by equality. Used to find past studies
    whose winners are worth trying first.
    """
    if one.system != other.system or one.objective.metric != other.objective.metric:
        return 0.0
    mine, theirs = one.facts, other.facts
    names = mine.keys() | theirs.keys()
    if not names:
        return 1.0
    return sum(_agree(mine.get(name), theirs.get(name)) for name in names) / len(names)


def _agree(one: Value, other: Value) -> float:
    numbers = (int, float)
    if isinstance(one, numbers) and isinstance(other, numbers) and not isinstance(one, bool) and not isinstance(other, bool):
        if one == other:
            return 1.0
        low, high = sorted((abs(one), abs(other)))
        return low / high if high and one * other > 0 else 0.0
    return 1.0 if one == other else 0.0
