"""Safety bounds of an operator: ranges, largest step, quiet hours, and how many changes a day."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from autoscout.common.text import suggestion
from autoscout.core.config import Config, Value
from autoscout.core.errors import ConfigError, Fault
from autoscout.space import Choice, Flag, Grid, Knob, Space

DAY_S = 86_400.0
_HOURS = re.compile(r"([01]\d|2[0-4]):([0-5]\d)-([01]\d|2[0-4]):([0-5]\d)")


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What a controller may do by itself.

    Attributes:
        ranges: Knob -> least and most, or a list of allowed values for a knob that is no number.
        frozen: Knobs that stay as they are.
        most_steps: Places along the values of a knob that one change may move it; 0: any.
        quiet: Hours in which nothing is changed, such as `22:00-06:00`.
        zone: Time zone of the quiet hours.
        changes_per_day: Changes in any 24 hours; rollbacks do not count, they are always allowed.
    """

    ranges: Mapping[str, Sequence[Value]] = field(default_factory=dict)
    frozen: Sequence[str] = ()
    most_steps: int = 0
    quiet: Sequence[str] = ()
    zone: str = "UTC"
    changes_per_day: int = 4

    def check(self, space: Space) -> None:
        """Refuse bounds that do not fit the knobs.

        Raises:
            ConfigError: all faults at once.
        """
        faults = []
        for where, name in [*(("ranges", name) for name in self.ranges), *(("frozen", name) for name in self.frozen)]:
            if name not in space.knobs:
                faults.append(Fault(where="bounds", field=where, value=name, rule="no such knob", fix=suggestion(name, space.knobs)))
        for name, allowed in self.ranges.items():
            if name in space.knobs and not _within(space.knobs[name], allowed):
                rule = f"leaves no value of {name}; a range is [least, most]"
                faults.append(Fault(where="bounds", field=f"ranges.{name}", value=str(list(allowed)), rule=rule))
        faults += [Fault(where="bounds", field="quiet", value=text, rule="must read HH:MM-HH:MM") for text in self.quiet if not _span(text)]
        try:
            ZoneInfo(self.zone)
        except (ValueError, OSError, KeyError):
            faults.append(Fault(where="bounds", field="zone", value=self.zone, rule="no such time zone", fix="Example: Europe/Berlin"))
        if faults:
            raise ConfigError(faults)

    def narrowed(self, space: Space, now: Config) -> Space:
        """The knobs with the values that the next change may give them; the ones in force are always among them."""
        return Space([self._narrow(space.knobs[name], now) for name in space.declared], space.constraints, dict(space.facts))

    def _narrow(self, knob: Knob, now: Config) -> Knob:
        here = now.get(knob.name, knob.default)
        values: list[Value] = list(_within(knob, self.ranges[knob.name])) if knob.name in self.ranges else list(knob.values)
        if knob.ordered:
            values = sorted({*values, here}, key=lambda value: float(value or 0))  # what is in force may lie between
            if self.most_steps:
                index = values.index(here)
                values = values[max(0, index - self.most_steps) : index + self.most_steps + 1]
        if knob.name in self.frozen:
            values = [here]
        return _like(knob, values if here in values else [*values, here], here)

    def allowed(self, space: Space, now: Config) -> dict[str, dict[str, list[Value]]]:
        """What the next change may give each knob that is bounded: `between` two numbers, the listed ones or not, or `among` some values.

        Plain data: the controller keeps it with each look, so that whoever proposes settings is answered at once.
        """
        allowed = {}
        for name in space.declared:
            knob, here = space.knobs[name], now.get(name, space.knobs[name].default)
            if name in self.frozen:
                allowed[name] = {"among": [here]}
            elif name in self.ranges or (self.most_steps and knob.ordered):
                values = list(self._narrow(knob, now).values)
                allowed[name] = {"between": self._ends(knob, values, here)} if knob.ordered else {"among": values}
        return allowed

    def _ends(self, knob: Knob, values: list[Value], here: Value) -> list[Value]:
        """Least and most of a number: the ends of its range where no step is too far."""
        ends = self.ranges.get(knob.name)
        if ends is None:
            return [values[0], values[-1]]
        inside = sorted({*_within(knob, ends), here}, key=lambda value: float(value or 0))
        index, steps = inside.index(here), self.most_steps
        least = ends[0] if not steps or index < steps else values[0]
        return [least, ends[1] if not steps or index + steps >= len(inside) else values[-1]]

    def outside(self, space: Space, now: Config, after: Config) -> list[Fault]:
        """Why a change may not be made: knobs that leave their range or move too far. Numbers between the listed ones are fine."""
        faults = refusals(self.allowed(space, now), now, after)
        named = {fault.field for fault in faults}
        for name, value in after.items():
            if name in space.knobs and name not in {*named, *self.ranges} and now.get(name) != value:
                knob = self._narrow(space.knobs[name], now)
                if not _is_inside(knob, value):
                    faults.append(_refusal(name, value, f"{knob.values[0]} to {knob.values[-1]}"))
        return faults

    def quiet_at(self, at_s: float) -> str:
        """The quiet hours that a moment lies in; empty: none."""
        local = datetime.fromtimestamp(at_s, UTC).astimezone(ZoneInfo(self.zone))
        minute = local.hour * 60 + local.minute
        for text in self.quiet:
            begin, end = _span(text) or (0, 0)
            inside = begin <= minute < end if begin <= end else minute >= begin or minute < end
            if inside:
                return text
        return ""

    def is_used_up(self, changes_s: Sequence[float], at_s: float) -> bool:
        """Whether a day's changes have been made."""
        return sum(at_s - DAY_S < moment <= at_s for moment in changes_s) >= self.changes_per_day


def refusals(allowed: Mapping[str, Mapping[str, Sequence[Value]]], now: Config, after: Mapping[str, Value]) -> list[Fault]:
    """Why values may not be had.

    Args:
        allowed: As `Bounds.allowed` gives it.
        now: The settings in force; a knob may always stay as it is.
        after: The values that are asked for.
    """
    faults = []
    for name, value in after.items():
        rule = allowed.get(name)
        if rule is None or now.get(name) == value:
            continue
        if "among" in rule:
            if value not in rule["among"]:
                faults.append(_refusal(name, value, ", ".join(str(each) for each in rule["among"])))
            continue
        least, most = rule["between"]
        if not isinstance(value, (int, float)) or not float(least or 0) <= value <= float(most or 0):
            faults.append(_refusal(name, value, f"{least} to {most}"))
    return faults


def _refusal(name: str, value: Value, allowed: str) -> Fault:
    rule = f"is outside of the operator's bounds: {allowed} now"
    return Fault(where="bounds", field=name, value=str(value), rule=rule, fix="Change bounds in the configuration")


def _within(knob: Knob, allowed: Sequence[Value]) -> list[Value]:
    if not knob.ordered:
        return [value for value in knob.values if value in allowed]
    numbers: list[Any] = [value for value in allowed if isinstance(value, (int, float)) and not isinstance(value, bool)]
    if len(numbers) != 2 or len(allowed) != 2:
        return []
    return [value for value in knob.values if numbers[0] <= float(value or 0) <= numbers[1]]


def _is_inside(knob: Knob, value: Value) -> bool:
    if knob.ordered and isinstance(value, (int, float)):
        return float(knob.values[0] or 0) <= value <= float(knob.values[-1] or 0)
    return value in knob


def _like(knob: Knob, values: Sequence[Value], default: Value) -> Knob:
    """A knob with other values."""
    common: dict[str, Any] = {
        "default": default,
        "when": knob.when,
        "unit": knob.unit,
        "restart": knob.restart,
        "help": knob.help,
        "warning": knob.warning,
    }
    if knob.ordered:
        return Grid(knob.name, values=values, log=knob.log, sparse=knob.sparse, **common)  # type: ignore[arg-type]
    if isinstance(knob, Flag) and len(values) == 2:
        return Flag(knob.name, sparse=knob.sparse, **common)
    return Choice(knob.name, values, sparse=knob.sparse, **common)


def _span(text: str) -> tuple[int, int] | None:
    match = _HOURS.fullmatch(text.strip())
    return (int(match[1]) * 60 + int(match[2]), int(match[3]) * 60 + int(match[4])) if match else None
