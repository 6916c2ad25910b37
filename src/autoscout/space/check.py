"""Why a configuration is refused, in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autoscout.common.text import suggestion
from autoscout.core.config import Config, Value
from autoscout.space.algebra import UNDEFINED, evaluate
from autoscout.space.compile import Compiled
from autoscout.space.constraint import Constraint
from autoscout.space.knobs import Knob, shown


def faults_of(config: Config, compiled: Compiled, constraints: Sequence[Constraint], facts: Mapping[str, Value]) -> list[str]:
    """Every rule that a complete configuration breaks; empty when it is valid."""
    if _is_plainly_valid(config, compiled):
        return []
    faults = _unknown(config, compiled)
    values: dict[int, Any] = dict.fromkeys(range(len(compiled.knobs)), UNDEFINED)
    for index, knob in enumerate(compiled.knobs):
        active = compiled.conditions[index].value if compiled.conditions[index].constant else evaluate(compiled.conditions[index], values)
        if knob.name not in config:
            if active:
                because = f" although {knob.when}" if knob.when else ""
                faults.append(f"Knob {knob.name!r} has no value{because}; it takes one of {shown(knob.values)}.")
            continue
        value = config[knob.name]
        if not active:
            reading = _reading(Constraint(knob.when or "True"), config, facts)
            faults.append(f"Knob {knob.name!r} is set to {value!r} but inactive: {knob.when} is not true{reading}.")
        elif knob.position(value) is None:
            faults.append(_outside(knob, value))
        else:
            values[index] = value
    for constraint, rule in zip(constraints, compiled.rules, strict=True):
        if not evaluate(rule, values):
            reason = f" ({constraint.why})" if constraint.why else ""
            faults.append(f"Constraint {constraint.text} is broken{_reading(constraint, config, facts)}{reason}.")
    return faults


def _is_plainly_valid(config: Config, compiled: Compiled) -> bool:
    """Whether a configuration of a space without conditions and constraints has a value of each knob: the common and quick case."""
    held = config.to_json()
    if compiled.rules or len(held) != len(compiled.knobs):
        return False
    return all(knob.when is None and knob.name in held and knob.position(held[knob.name]) is not None for knob in compiled.knobs)


def why_not(partial: Config, compiled: Compiled, constraints: Sequence[Constraint]) -> list[str]:
    """Why a partial configuration cannot be completed; empty when it can."""
    faults = _unknown(partial, compiled)
    for name, value in partial.items():
        if name in compiled.index and value not in compiled.knobs[compiled.index[name]]:
            faults.append(_outside(compiled.knobs[compiled.index[name]], value))
    if faults or compiled.states(partial) is not None:
        return faults
    conflict = partial
    for name in partial:  # drop what the contradiction does not need
        less = conflict.without(name)
        if compiled.states(less) is None:
            conflict = less
    culprits = ", ".join(f"{name}={value!r}" for name, value in conflict.items())
    readers = [f"{one.text} ({one.why})" if one.why else one.text for one in constraints if set(one.names()) & set(conflict)]
    readers += [f"{knob.name} when {knob.when}" for knob in compiled.knobs if knob.name in conflict and knob.when]
    return [f"Nothing valid has {culprits}{' because of ' + '; '.join(readers[:4]) if readers else ''}."]


def _unknown(config: Config, compiled: Compiled) -> list[str]:
    return [f"There is no knob {name!r}. {suggestion(name, compiled.index)}" for name in config if name not in compiled.index]


def _outside(knob: Knob, value: Value) -> str:
    hint = ""
    if isinstance(value, (int, float)):
        alike = [other for other in (int(value), float(value), bool(value)) if other == value and other in knob]
        hint = f" Did you mean {alike[0]!r} ({type(alike[0]).__name__})?" if alike else ""
    return f"Knob {knob.name!r} cannot be {value!r}; it takes one of {shown(knob.values)}.{hint}"


def _reading(constraint: Constraint, config: Config, facts: Mapping[str, Value]) -> str:
    """` with tp=2, gpus=8`: the values that a rule sees."""
    values = [
        f"{name}={config[name]!r}" if name in config else f"{name}={facts[name]!r}" if name in facts else f"{name} inactive"
        for name in constraint.names()
    ]
    return f" with {', '.join(values)}" if values else ""
