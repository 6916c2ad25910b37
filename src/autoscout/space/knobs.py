"""Knobs: one thing that may be chosen, with the values it may take."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from autoscout.core.config import Value
from autoscout.core.errors import Fault, SpaceError
from autoscout.space.values import Steps, is_on_grid, linear, logarithmic, with_default


class _Unset:
    def __repr__(self) -> str:
        return "?"


_UNSET = _Unset()
When = str | None

MOST_POINTS = 100_000  # values of one knob that are computed at once: points, ratios, a range with its default off the grid
MOST_STEPS = 10**12  # values of a range with a step, which are computed when asked for
MOST_NUMBER = 2**63 - 1  # size of a whole number: what stores and numpy keep exactly


class Knob:
    """One setting of the system.

    Do not build it directly: use `Choice`, `Flag` or `Grid`. A knob never changes.

    Attributes:
        name: How configurations, expressions and files call it.
        values: What it may hold, in order; may be lazy, so use `len`, indexing and `in`, or `position`.
        default: What the engine itself does when nobody sets it; always one of `values`.
        sparse: Part of the structure (searched by tree) or, when False, dense (searched along its order).
        when: Condition on other knobs under which it exists at all; None means always.
        unit: Of the values ("MB", "s"), for people.
        restart: Whether a change needs a new process of the system.
        help: One line for people.
        warning: What is given up with any value but the default; said wherever such a value is recommended.
        ordered: Whether neighbours in `values` are alike, so that steps along them mean something.
        log: Whether ratios rather than differences of values matter.
    """

    kind: ClassVar[str] = "knob"
    ordered: ClassVar[bool] = False

    def __init__(
        self,
        name: str,
        values: Sequence[Value],
        *,
        default: Value | _Unset = _UNSET,
        sparse: bool,
        when: When = None,
        unit: str = "",
        restart: bool = True,
        help: str = "",
        warning: str = "",
        log: bool = False,
    ) -> None:
        self.name = _checked_name(name)
        if not len(values):
            raise _fault(name, "values", "[]", "a knob needs at least one value", "List what it may hold")
        self.values = values
        self.sparse = sparse
        self.when = when
        self.unit = unit
        self.restart = restart
        self.help = help
        self.warning = warning
        self.log = log
        self._positions: dict[tuple[type, Value], int] | None = None
        self.default: Value = values[0] if isinstance(default, _Unset) else default
        if self.position(self.default) is None:
            raise _fault(name, "default", repr(self.default), f"the default must be one of the values {shown(values)}", "")

    def __repr__(self) -> str:
        condition = f", when={self.when!r}" if self.when else ""
        return f"{type(self).__name__}({self.name!r}, {shown(self.values)}, default={self.default!r}{condition})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, Knob) and self.spec() == other.spec() and _typed(self) == _typed(other)

    def __hash__(self) -> int:
        return hash((type(self), self.name))

    def __contains__(self, value: object) -> bool:
        return self.position(value) is not None

    def position(self, value: object) -> int | None:
        """The position of `value` in `values`; None when it is not there. `1`, `1.0` and `True` are three values."""
        if isinstance(self.values, range):
            return self.values.index(value) if type(value) is int and value in self.values else None
        if isinstance(self.values, Steps):
            return self.values.find(value)
        if self._positions is None:
            self._positions = {(item.__class__, item): index for index, item in enumerate(self.values)}
        try:
            return self._positions.get((value.__class__, value))  # type: ignore[arg-type]
        except TypeError:  # unhashable
            return None

    def nearest(self, target: object, among: Sequence[Value] | None = None) -> Value:
        """The value closest to `target`.

        Numbers by distance, by ratio on a log scale; anything else itself, or the default, or the first.

        Args:
            target: Anything; a number need not be on the grid.
            among: Choose from these values (not empty) instead of all.
        """
        pool = self.values if among is None else among
        number = None
        if isinstance(target, (int, float)) and not isinstance(target, bool) and math.isfinite(target):
            number = float(target)
        if self.ordered:
            return self._closest(float(self.default or 0) if number is None else number, pool)
        for value in pool:
            if value.__class__ is target.__class__ and value == target:
                return value
        numbers = [value for value in pool if isinstance(value, (int, float)) and not isinstance(value, bool)]
        if number is not None and numbers:
            return min(numbers, key=lambda value: abs(value - number))
        return self.default if any(value.__class__ is self.default.__class__ and value == self.default for value in pool) else pool[0]

    def _closest(self, target: float, pool: Sequence[Any]) -> Value:
        """By bisection: the values of an ordered knob ascend."""
        low, high = 0, len(pool)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if pool[middle] < target else (low, middle)
        if low == 0 or low == len(pool):
            return pool[min(low, len(pool) - 1)]  # type: ignore[no-any-return]
        below, above = pool[low - 1], pool[low]
        if self.log and below > 0:
            return below if target * target <= float(below) * float(above) else above  # type: ignore[no-any-return]
        return below if target - below <= above - target else above  # type: ignore[no-any-return]

    def parse(self, text: str) -> Value:
        """The value that a person means by `text` on a command line.

        Raises:
            SpaceError: no value reads like that.
        """
        word = text.strip()
        listed = self.values if len(self.values) <= 10_000 else ()
        same = [value for value in listed if word == str(value)]
        for value in same or (value for value in listed if word.lower() in _SPELLINGS.get(repr(value), ())):
            return value
        try:
            number = float(word)
        except ValueError:
            number = math.nan
        for candidate in (number, int(number) if math.isfinite(number) and number == int(number) else None):
            if candidate is not None and (position := self.position(candidate)) is not None:
                return self.values[position]
        near = f"The nearest is {self.nearest(number)}" if self.ordered and math.isfinite(number) else ""
        raise _fault(self.name, "", repr(text), f"must be one of {shown(self.values)}", near)

    def only(self, value: Value) -> Self:
        """This knob with one value left."""
        if self.position(value) is None:
            raise _fault(self.name, "", repr(value), f"must be one of {shown(self.values)}", "")
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy.values, copy.default, copy._positions = (value,), value, None
        return copy

    def reaching(self, target: object) -> Knob:  # noqa: ARG002 - only ordered knobs have something between their values
        """This knob with one more value, where that is a number between two of its own; else itself."""
        return self

    def spec(self) -> dict[str, Any]:
        """The YAML form of this knob, without what equals the default of its kind."""
        return self._common({"values": list(self.values)}, sparse=True)

    def _common(self, options: dict[str, Any], *, sparse: bool) -> dict[str, Any]:
        if self.default != self.values[0] or type(self.default) is not type(self.values[0]):
            options["default"] = self.default
        if self.sparse != sparse:
            options["sparse"] = self.sparse
        for key, value, usual in (
            ("when", self.when, None),
            ("unit", self.unit, ""),
            ("restart", self.restart, True),
            ("help", self.help, ""),
            ("warning", self.warning, ""),
        ):
            if value != usual:
                options[key] = value
        return options


class Choice(Knob):
    """Categories, or any list of values that has no meaningful order."""

    kind = "choice"

    def __init__(
        self,
        name: str,
        values: Sequence[Value],
        default: Value | _Unset = _UNSET,
        sparse: bool = True,
        when: When = None,
        unit: str = "",
        restart: bool = True,
        help: str = "",
        warning: str = "",
    ) -> None:
        listed = _listed(name, values)
        super().__init__(name, listed, default=default, sparse=sparse, when=when, unit=unit, restart=restart, help=help, warning=warning)

    def spec(self) -> dict[str, Any]:
        numeric = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in self.values)
        return self._common({**({"type": "choice"} if numeric else {}), "values": list(self.values)}, sparse=True)


class Flag(Knob):
    """On or off."""

    kind = "flag"

    def __init__(
        self,
        name: str,
        default: bool = False,
        sparse: bool = True,
        when: When = None,
        unit: str = "",
        restart: bool = True,
        help: str = "",
        warning: str = "",
    ) -> None:
        super().__init__(
            name, (False, True), default=default, sparse=sparse, when=when, unit=unit, restart=restart, help=help, warning=warning
        )

    def spec(self) -> dict[str, Any]:
        if len(self.values) == 1:
            return self._common({"values": list(self.values)}, sparse=True)
        return self._common({"type": "bool"}, sparse=True)


class Grid(Knob):
    """Ordered numbers: a range with a step, a range on a log scale, or an explicit ascending list.

    - `Grid("x", 1, 64)`: all whole numbers; a fractional range without a step gets 101 points.
    - `Grid("x", 0.5, 0.95, step=0.05)`: steps from `low`; `high` is the last that fits.
    - `Grid("x", 1, 512, log=True)`: 1, 2, 4, ... and 512 (`base=4` for other ratios, `points=20` for evenly spread ones).
    - `Grid("x", 1, 512, step=1, log=True)`: all whole numbers, of which ratios matter.
    - `Grid("x", values=[1, 2, 4, 6, 8])`.

    A default inside a range but off its grid is added to the values, because the engine's own setting must be reachable.
    """

    kind = "grid"
    ordered = True

    def __init__(
        self,
        name: str,
        low: float | None = None,
        high: float | None = None,
        step: float | None = None,
        log: bool = False,
        base: float | None = None,
        points: int | None = None,
        values: Sequence[float] | None = None,
        default: float | _Unset = _UNSET,
        sparse: bool = False,
        when: When = None,
        unit: str = "",
        restart: bool = True,
        help: str = "",
        warning: str = "",
    ) -> None:
        self._range: dict[str, Any] = {}
        if values is None:
            self._range = {key: value for key, value in (("step", step), ("base", base), ("points", points)) if value is not None}
            grid: Sequence[Value] = _spread(name, low, high, log, self._range)
            self._range = {"range": [low, high], **({"log": True} if log else {}), **self._range}
            grid = _reach(name, grid, default, low, high)
        else:
            grid = _ascending(name, values, low, high, {"step": step, "base": base, "points": points})
        default = as_fraction(default) if isinstance(grid[0], float) else default
        super().__init__(
            name, grid, default=default, sparse=sparse, when=when, unit=unit, restart=restart, help=help, warning=warning, log=log
        )

    def reaching(self, target: object) -> Knob:
        least, largest = float(self.values[0] or 0), float(self.values[-1] or 0)
        if not isinstance(target, (int, float)) or isinstance(target, bool) or not least < target < largest:
            return self
        fits = isinstance(self.values[0], float) or float(target).is_integer()
        extended = with_default(self.values, target) if fits and len(self.values) <= MOST_POINTS else self.values
        if extended is self.values:
            return self
        copy = self.only(self.default)
        copy.values, copy._range = extended, {}
        return copy

    def spec(self) -> dict[str, Any]:
        if self._range and len(self.values) > 1:
            return self._common(dict(self._range), sparse=False)
        return self._common({"values": list(self.values), **({"log": True} if self.log else {})}, sparse=False)


_SPELLINGS = {"True": ("true", "on", "yes", "1"), "False": ("false", "off", "no", "0"), "None": ("null", "none", "not given")}


def shown(values: Sequence[Value], most: int = 8) -> str:
    """The values for a message, the middle left out when there are many."""
    if len(values) <= most:
        return "[" + ", ".join(repr(value) for value in values) + "]"
    return f"[{values[0]!r}, {values[1]!r}, {values[2]!r}, ..., {values[-1]!r}] ({len(values)} values)"


def _fault(name: str, part: str, value: str, rule: str, fix: str) -> SpaceError:
    field = f"knobs.{name}.{part}" if part else f"knobs.{name}"
    return SpaceError(Fault(field=field, value=value, rule=rule, fix=fix))


def _typed(knob: Knob) -> tuple[type, ...]:
    return (type(knob.default), type(knob.values[0]))


def _checked_name(name: str) -> str:
    if not isinstance(name, str) or not name or name != name.strip() or not name.isprintable() or set(name) & set("`'\"{}="):
        rule = "a knob needs a printable name without quotes, backticks, braces, equals signs and outer spaces"
        raise SpaceError(Fault(field="knobs", value=repr(name), rule=rule))
    return name


def _listed(name: str, values: Sequence[Value]) -> tuple[Value, ...]:
    if isinstance(values, (str, bytes, Mapping)):
        raise _fault(name, "values", repr(values), "values must be a list", "Write [a, b]")
    listed = tuple(values)
    for value in listed:
        if not isinstance(value, (bool, int, float, str)) and value is not None:
            raise _fault(name, "values", repr(value), "a value must be a number, text, true, false or null", "")
        _check_number(name, "values", value)
    if len({(type(value), value) for value in listed}) < len(listed):
        distinct: set[tuple[type, Value]] = set()
        double = next(value for value in listed if (type(value), value) in distinct or distinct.add((type(value), value)))  # type: ignore[func-returns-value]
        raise _fault(name, "values", repr(double), "every value may be listed once", "Remove the second one")
    return listed


def _check_number(name: str, part: str, value: Any) -> None:
    """Refuse numbers that no configuration can hold; anything that is no number passes."""
    if isinstance(value, float) and not math.isfinite(value):
        raise _fault(name, part, repr(value), "a number must be finite", "")
    if isinstance(value, int) and abs(value) > MOST_NUMBER:
        raise _fault(name, part, f"a number of {value.bit_length()} bits", "a whole number has at most 63 bits", "")


def _is_numeric(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _ascending(
    name: str, values: Sequence[float], low: float | None, high: float | None, others: Mapping[str, float | None]
) -> tuple[Value, ...]:
    used = [key for key, value in {"range": low if low is not None else high, **others}.items() if value is not None]
    if used:
        raise _fault(name, used[0], "", f"values and {used[0]} cannot both be given", "Keep one")
    for value in values:
        if not _is_numeric(value):
            raise _fault(name, "values", repr(value), "a grid holds numbers only", "Use Choice for other values")
        _check_number(name, "values", value)
    ascending = sorted(values)
    if any(isinstance(value, float) for value in ascending):
        ascending = [float(value) for value in ascending]
    return _listed(name, ascending)


def _spread(name: str, low: float | None, high: float | None, log: bool, given: dict[str, Any]) -> Sequence[Value]:
    if low is None or high is None:
        raise _fault(name, "range", repr([low, high]), "a grid needs a low and a high end, or values", "Write range: [1, 64]")
    for end in (low, high):
        if not _is_numeric(end):
            raise _fault(name, "range", repr(end), "the ends of a range must be finite numbers", "")
        _check_number(name, "range", end)
    if low > high:
        raise _fault(name, "range", repr([low, high]), "the low end must not be above the high end", "Swap them")
    step, base, points = given.get("step"), given.get("base"), given.get("points")
    if step is not None and not (_is_numeric(step) and 0 < step <= MOST_NUMBER):
        raise _fault(name, "step", repr(step), "a step must be a number above zero", "")
    if points is not None and not (type(points) is int and 2 <= points <= MOST_POINTS):
        raise _fault(name, "points", repr(points), f"points must be a whole number from 2 to {MOST_POINTS:,}", "")
    if base is not None and not (log and _is_numeric(base) and 1 < base <= MOST_NUMBER):
        raise _fault(name, "base", repr(base), "a base must be above 1 and needs log: true", "")
    if sum(value is not None for value in (step, base, points)) > 1:
        raise _fault(name, "range", repr(given), "step, base and points exclude each other", "Keep one")
    if log and low <= 0:
        raise _fault(name, "range", repr([low, high]), "a log scale must start above zero", "Raise the low end or drop log")
    if log and step is None:
        count = points or math.log(high / low) / math.log(base or 2)
        if not count <= MOST_POINTS:
            raise _fault(name, "base", repr(base), f"a log scale has at most {MOST_POINTS:,} values", "Take a larger base, or points")
        return logarithmic(low, high, base, points)
    if points is None and not (high - low) / (step or 1) < MOST_STEPS:
        raise _fault(
            name, "step" if step else "range", repr(step or [low, high]), f"a range has at most {MOST_STEPS:,} values", "Take a larger step"
        )
    return linear(low, high, step, points)


def _reach(name: str, values: Sequence[Value], default: float | _Unset, low: Any, high: Any) -> Sequence[Value]:
    if isinstance(default, _Unset):
        return values
    if not _is_numeric(default) or not low <= default <= high:
        raise _fault(name, "default", repr(default), f"the default must be in the range [{low}, {high}]", "")
    if len(values) > MOST_POINTS and not is_on_grid(values, default):
        rule = f"a range of more than {MOST_POINTS:,} values must contain its default"
        raise _fault(name, "default", repr(default), rule, "Take a value on the grid, or a larger step")
    return with_default(values, default)


def as_fraction(value: Any) -> Any:
    """A whole number that a knob can hold as a fraction; anything else as it is."""
    return float(value) if type(value) is int and abs(value) <= MOST_NUMBER else value
