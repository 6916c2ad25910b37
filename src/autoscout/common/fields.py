"""The blocks of a task description, read the same way by every backend: typed, all faults at once, with "did you mean".

A backend declares the fields of its workload as a `Block` and reads a description like this:

    class Workload(Block):
        file: str
        rows: int = Field(1000, gt=0)

    blocks = read_blocks(given)
    workload, faults = read_fields(Workload, blocks.workload, "workload")
    objective, more = read_objective(blocks.objective, metrics=("wall_s", "rows_per_s"), default="wall_s")
    refuse_if([*blocks.faults, *faults, *more])
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, ValidationError

from autoscout.common.derived import DERIVED
from autoscout.common.text import suggestion
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.task import MOST_GOALS, Budget, Direction, Goal, Guard, Limit, Objective

BLOCKS = ("workload", "hardware", "software", "objective", "budget")
"""The blocks of a task description."""

NO_METRIC = "no such metric"

_SHOWN = 80  # characters of a value that a message repeats

_RULES = {
    "bool_type": "must be true or false",
    "dict_type": "must be a mapping with text keys",
    "finite_number": "must be a finite number",
    "float_type": "must be a number",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "int_type": "must be a whole number",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "list_type": "must be a list",
    "literal_error": "must be one of: {expected}",
    "mapping_type": "must be a mapping with text keys",
    "missing": "is required",
    "model_type": "must be a mapping with text keys",
    "string_too_short": "must not be empty",
    "string_type": "must be text",
    "tuple_type": "must be a list",
}
"""pydantic's kind of error -> the rule in our words; other kinds keep pydantic's sentence."""
_RULES |= dict.fromkeys(("int_parsing", "int_from_float"), _RULES["int_type"])
_RULES |= {kind: _RULES[f"{kind.split('_')[0]}_type"] for kind in ("bool_parsing", "float_parsing")}

_MORE = (
    r"throughput|goodput|capacity_sessions|per_s(ec(ond)?)?(_|$)|_per_gpu|tokens_per"
    r"|(^|_)([tg]?flops|mfu|qps|rps|tps|fps|iops|accuracy|speedup)(_|$)"
)
_LESS = (
    r"(^|_)(time|latency|ttft|tpot|itl|e2el|jct|makespan|loss|divergence|perplexity|ppl|cost|mem|memory|energy|power)(_|$)"
    r"|_(s|ms|us|ns|gib|gb|mb|j)$"
)

Place = tuple[str | int, ...]
"""Keys and positions that lead to a value inside a document."""

Model = TypeVar("Model", bound=BaseModel)


class Refused(ValueError):  # noqa: N818 - named for what a validator does
    """Raised by a validator that has more to say than one rule; fields of the faults are relative to the value's own."""

    def __init__(self, faults: str | Fault | Iterable[Fault], fix: str = "") -> None:
        listed = [Fault(rule=faults, fix=fix)] if isinstance(faults, str) else [faults] if isinstance(faults, Fault) else list(faults)
        self.faults: list[Fault] = listed
        super().__init__("; ".join(fault.rule for fault in listed))


class Block(BaseModel):
    """A block of a description: unknown fields and other types are faults, values never change, text is no number."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, arbitrary_types_allowed=True, protected_namespaces=())


def faults_from(
    error: ValidationError, where: str, model: type[BaseModel] | None = None, places: Mapping[Place, str] | None = None
) -> list[Fault]:
    """What pydantic found wrong, as faults.

    Args:
        error: Raised by `model_validate`.
        where: File, flag or block, for messages.
        model: What was read; its fields are suggested for unknown ones.
        places: Where each value is in its file; a value that is not there is reported at the closest block around it.
    """
    return [fault for detail in error.errors(include_url=False) for fault in _faults(dict(detail), where, model, places or {})]


def _faults(detail: Mapping[str, Any], where: str, model: type[BaseModel] | None, places: Mapping[Place, str]) -> list[Fault]:
    path, kind, context = tuple(detail["loc"]), detail["type"], detail.get("ctx") or {}
    place = _place(path, places, where)
    name, value = ".".join(str(part) for part in path if part != ""), shown(detail.get("input"))
    refused = context.get("error")
    if isinstance(refused, Refused):
        dotted = [".".join(part for part in (name, fault.field) if part) for fault in refused.faults]
        inner = [_place((*path, *(fault.field.split(".") if fault.field else ())), places, where) for fault in refused.faults]
        return [
            replace(fault, where=line, field=part, value=fault.value or ("" if fault.field else value))
            for fault, part, line in zip(refused.faults, dotted, inner, strict=True)
        ]
    if kind == "extra_forbidden":
        return [Fault(where=place, field=name, value=value, rule="unknown key", fix=suggestion(str(path[-1]), _names(model, path)))]
    rule = _RULES[kind].format(**context) if kind in _RULES else str(detail["msg"]).removeprefix("Value error, ")
    return [Fault(where=place, field=name, value="" if kind == "missing" else value, rule=rule)]


def _place(path: Place, places: Mapping[Place, str], where: str) -> str:
    """Where a value is in its file, or the closest block around it."""
    return next((places[path[:length]] for length in range(len(path), 0, -1) if path[:length] in places), where)


def _names(model: type[BaseModel] | None, path: Place) -> list[str]:
    """The fields next to the one at `path`."""
    for part in path[:-1]:
        inner = model.model_fields[str(part)].annotation if model and str(part) in model.model_fields else None
        model = inner if isinstance(inner, type) and issubclass(inner, BaseModel) else None
    return [field.alias or name for name, field in model.model_fields.items()] if model else []


def shown(value: object) -> str:
    """A value as messages repeat it, long ones cut."""
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def refuse_if(faults: Sequence[Fault]) -> None:
    """Raise `ConfigError` with all faults, if there are any."""
    if faults:
        raise ConfigError(faults)


def read_fields(model: type[Model], data: Mapping[str, Any], where: str) -> tuple[Model | None, list[Fault]]:
    """A block, and all that is wrong with it.

    Fields that are null count as left out. Fields and entries of mappings that have faults are left out too, so that later checks can
    name what is wrong with the rest; None where a required field is missing or bad.
    """
    values = {name: value for name, value in data.items() if value is not None}
    try:
        return model.model_validate(values), []
    except ValidationError as error:
        faults = faults_from(error, where, model)
        paths = [tuple(detail["loc"]) for detail in error.errors(include_url=False)]
    for depth in (2, 1) if all(paths) else ():  # without the bad entries, else without the bad fields; not if the whole is at fault
        try:
            return model.model_validate(_without(values, [path[:depth] for path in paths])), faults
        except ValidationError:
            continue
    return None, faults


def _without(data: Mapping[str, Any], paths: Iterable[Place]) -> dict[str, Any]:
    entries: dict[str | int, Any] = {name: dict(value) if isinstance(value, Mapping) else value for name, value in data.items()}
    for name, *rest in paths:
        if rest and isinstance(entries.get(name), dict):
            entries[name].pop(rest[0], None)
        else:
            entries.pop(name, None)
    return {str(name): value for name, value in entries.items()}


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """A task description taken apart; what is not a mapping is empty here and a fault there."""

    workload: dict[str, Any] = field(default_factory=dict)
    hardware: dict[str, Any] = field(default_factory=dict)
    software: dict[str, Any] = field(default_factory=dict)
    objective: dict[str, Any] = field(default_factory=dict)
    budget: Budget = field(default_factory=Budget)
    faults: list[Fault] = field(default_factory=list)


def read_blocks(description: Mapping[str, object], also: Collection[str] = ()) -> Blocks:
    """Take a task description apart.

    A campaign says `goal` for the objective, and may write just the name of its metric, or a list of them.

    Args:
        description: What `Backend.task` was given.
        also: Further blocks that this backend reads by itself.
    """
    faults: list[Fault] = []
    blocks: dict[str, dict[str, Any]] = {}
    for written, block in description.items():
        name = "objective" if written == "goal" else str(written)
        if name == "objective" and isinstance(block, str):
            block = {"metric": block}
        if name == "objective" and isinstance(block, (list, tuple)):
            block = {"metrics": list(block)}
        if name in BLOCKS and isinstance(block, Mapping):
            blocks[name] = {str(key): value for key, value in block.items()}
        elif name in BLOCKS and block is not None:
            faults.append(Fault(field=str(written), value=shown(block), rule="must be a mapping"))
        elif name not in (*BLOCKS, "system", *also):
            faults.append(Fault(field=name, rule="unknown part of a task", fix=suggestion(name, (*BLOCKS, *also))))
    budget, wrong = read_fields(_Budget, blocks.pop("budget", {}), "budget")
    return Blocks(**blocks, budget=Budget(**dict(budget or {})), faults=[*faults, *wrong])


class _Budget(Block):
    trials: int | None = Field(None, gt=0)
    wall_s: float | None = Field(None, gt=0)
    cost_s: float | None = Field(None, gt=0)
    failures: int | None = Field(None, gt=0)
    patience: int | None = Field(None, gt=0)


Bound = TypeVar("Bound", Limit, Guard)


def _bounds(kind: type[Bound], texts: Iterable[Any]) -> tuple[tuple[Bound, ...], list[Fault]]:
    bounds: list[Bound] = []
    faults: list[Fault] = []
    for text in texts:
        try:
            bounds.append(text if isinstance(text, kind) else kind.parse(str(text)))
        except ConfigError as error:
            faults += error.faults
    return tuple(bounds), faults


def _direction(value: object) -> Direction:
    if value not in list(Direction):
        raise Refused(f"must be {' or '.join(Direction)}")
    return Direction(str(value))


def as_list(value: Any) -> list[Any]:
    """A list of what was given; a lone value counts as a list of one."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


Listed = Annotated[list[Any], BeforeValidator(as_list)]
"""The field of a block that holds a list or a lone value."""


class _Objective(Block):
    metric: str | None = None
    metrics: Listed = []
    direction: Annotated[Direction, PlainValidator(_direction)] | None = None
    limits: Listed = []
    slo: Listed = []
    guards: Listed = []


def natural_direction(metric: str) -> Direction | None:
    """Which way is better, where the name of a metric leaves no doubt.

    >>> natural_direction("p95_ttft_ms")
    <Direction.MINIMIZE: 'minimize'>
    """
    if re.search(_MORE, metric):
        return Direction.MAXIMIZE
    return Direction.MINIMIZE if re.search(_LESS, metric) else None


def read_objective(
    data: Mapping[str, Any],
    *,
    metrics: Collection[str] | None,
    default: str,
    direction: Callable[[str], Direction | None] = natural_direction,
) -> tuple[Objective, list[Fault]]:
    """What to improve, and all that is wrong with it.

    Args:
        data: The block `objective`.
        metrics: The metrics that this system reports; None when they are known only after a run.
        default: The metric to improve when none is named.
        direction: Which way is better when the block does not say. A user is asked where it gives None: a wrong guess would cost a
            whole study.
    """
    read, faults = read_fields(_Objective, data, "goal")
    read = read or _Objective()
    pairs, wrong = _goals(read, default)
    limits, broken = _bounds(Limit, [*read.limits, *read.slo])
    guards, more = _bounds(Guard, read.guards)
    faults += [*wrong, *broken, *more]
    place = "metrics" if read.metrics else "metric"
    named = [*((metric, place) for metric, _ in pairs), *((limit.metric, "slo") for limit in limits)]
    for name, where in [*named, *((guard.metric, "guards") for guard in guards)]:
        if metrics is not None and name not in metrics and name not in DERIVED:
            faults.append(Fault(where="goal", field=where, value=repr(name), rule=NO_METRIC, fix=suggestion(name, metrics)))
    goals: list[Goal] = []
    sure = not any(fault.field in (place, "direction") for fault in faults)
    for metric, way in pairs:
        better = way or (natural_direction if metric in DERIVED else direction)(metric)
        if better is None and sure:
            fix = f"Write {metric}:minimize or {metric}:maximize" if read.metrics else "Write direction: minimize or direction: maximize"
            field_name = "metrics" if read.metrics else "direction"
            faults.append(Fault(where="goal", field=field_name, rule=f"is more {metric} better, or less?", fix=fix))
        goals.append(Goal(metric=metric, direction=better or Direction.MINIMIZE))
    first, *also = goals
    return Objective(metric=first.metric, direction=first.direction, limits=limits, guards=guards, also=tuple(also)), faults


def _goals(read: _Objective, default: str) -> tuple[list[tuple[str, Direction | None]], list[Fault]]:
    """The metrics to improve with the directions that were given, at least one."""
    if not read.metrics:
        return [(read.metric or default, read.direction)], []
    pairs: list[tuple[str, Direction | None]] = []
    faults: list[Fault] = []
    for text in read.metrics:
        try:
            pairs.append(Goal.parse(str(text)))
        except ConfigError as error:
            faults += error.faults
    faults += goal_faults(read.metric, read.direction, [metric for metric, _ in pairs])
    return pairs or [(default, None)], faults


def goal_faults(metric: str | None, direction: str | None, metrics: Sequence[str]) -> list[Fault]:
    """What is wrong with several goals together.

    Args:
        metric: The only metric, where a block names one as well.
        direction: Of that.
        metrics: The metrics of the goals.
    """
    faults: list[Fault] = []
    if metric is not None:
        faults.append(
            Fault(where="goal", field="metric", value=repr(metric), rule="give either metric or metrics", fix="List it in metrics")
        )
    if direction is not None:
        fix = "Write METRIC:minimize or METRIC:maximize in metrics"
        faults.append(Fault(where="goal", field="direction", value=repr(str(direction)), rule="each of the metrics has its own", fix=fix))
    if len(metrics) > MOST_GOALS:
        rule = f"at most {MOST_GOALS} goals"
        faults.append(Fault(where="goal", field="metrics", value=shown(list(metrics)), rule=rule, fix="Make the others limits (slo)"))
    if len(set(metrics)) < len(metrics):
        faults.append(Fault(where="goal", field="metrics", value=shown(list(metrics)), rule="a metric may be a goal once only"))
    return faults


__all__ = [
    "BLOCKS",
    "Block",
    "Blocks",
    "Listed",
    "Place",
    "Refused",
    "as_list",
    "faults_from",
    "natural_direction",
    "read_blocks",
    "read_fields",
    "read_objective",
    "refuse_if",
    "shown",
    "suggestion",  # what a backend also needs for its own names
]
