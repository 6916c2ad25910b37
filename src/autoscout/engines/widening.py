"""Knobs and values that a campaign names and the curated ones lack: any flag, any variable, any value that the engine takes."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from autoscout.common.fields import shown
from autoscout.common.text import suggestion
from autoscout.core.config import Value
from autoscout.core.errors import Fault, SpaceError
from autoscout.core.protocols import Asked
from autoscout.engines.space import ALL, default_of
from autoscout.engines.table import EngineTable, FlagRow, KnobRow, plain
from autoscout.space.yaml import RANGE_KEYS, read_knob

KNOB_KEYS = ("values", *RANGE_KEYS, "flag", "env", "default", "when", "unit", "help", "lossy")
"""What an entry of `space.knobs` may say; flags and variables become knobs by it."""
MOST_VALUES = 1000  # of one added knob
AUTO = "auto"
"""Stands for a flag that is left out, where the engine computes its default."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SWITCHES = ("bool", "switch")
_SCALES = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
"""As the engines read `--max-num-batched-tokens 8k`."""
_WORDS = {"true": True, "on": True, "yes": True, "1": True, "false": False, "off": False, "no": False, "0": False}


class Refusal(ValueError):  # noqa: N818 - what the engine does with a value
    """A value that a flag does not take; the text is the rule."""


def whole(text: str) -> int:
    """A whole number as the engines read it: `8192`, `8k` (8000), `8K` (8192)."""
    match = re.fullmatch(r"([+-]?\d+(?:\.\d+)?)([kKmMgG]?)", text.strip())
    number = float(match[1]) * _SCALES.get(match[2], 1) if match else 0.5
    if not number.is_integer():
        raise Refusal("must be a whole number")
    return int(number)


def converted(value: Any, flag: FlagRow | None) -> Value:
    """The value as the flag takes it.

    Raises:
        Refusal: the flag does not take it.
    """
    if isinstance(value, (dict, list)):
        value = json.dumps(value)
    if flag is None or value is None:  # a variable, or a key inside a JSON value: the table says nothing about it
        return value  # type: ignore[no-any-return]
    if flag.choices and flag.type == "choice":
        for choice in flag.choices:
            if str(choice) == str(value):
                return choice  # type: ignore[no-any-return]
        raise Refusal(f"{flag.flag} takes one of {shown(list(flag.choices))}")
    if flag.type in SWITCHES:
        word = str(value).lower()
        if word not in _WORDS:
            raise Refusal(f"{flag.flag} is on or off")
        return _WORDS[word]
    if flag.type == "int":
        return _number(value, flag, int)
    if flag.type == "float":
        return _number(value, flag, float)
    if flag.type == "json":
        try:
            inner = json.loads(str(value))
        except ValueError:
            inner = None
        if not isinstance(inner, dict):
            raise Refusal(f"{flag.flag} takes a JSON object; one of its keys is named {flag.name}.KEY")
        return str(value)
    return value  # type: ignore[no-any-return]


def _number(value: Any, flag: FlagRow, kind: type[int] | type[float]) -> Value:
    try:
        if isinstance(value, bool):
            raise ValueError
        if isinstance(value, str):
            return whole(value) if kind is int else float(value)
        if kind is int and not float(value).is_integer():
            raise ValueError
        return kind(value)
    except ValueError:
        raise Refusal(f"{flag.flag} takes a {'whole ' if kind is int else ''}number") from None


@dataclass
class Widening:
    """Reads what a campaign asks for; `rows` are the knobs that result, `faults` all that is wrong with it.

    Args:
        table: Flags and curated knobs.
        offered: Knobs that the space of the task has already, with their values.
        own: The engine's own values, where the table does not say.
        facts: Of the machine and the model.
        variables: Of the engine's environment, as the workload sets them.
        consent: Whether knobs that change the answers may be searched: all, or these.
    """

    table: EngineTable
    offered: Mapping[str, Sequence[Value]]
    own: Mapping[str, Value]
    facts: Mapping[str, Value] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    consent: bool | Collection[str] = False
    rows: dict[str, KnobRow] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    lossy: dict[str, Value] = field(default_factory=dict)  # values of the baseline that change the answers, without consent
    is_lossy: bool = False  # whether values that change the answers are searched

    def read(self, asked: Asked, carried: Mapping[str, Value]) -> None:
        """All of it: entries first, because configurations may name their knobs.

        Args:
            asked: By the campaign.
            carried: Knobs that the workload's own `engine_args` set.
        """
        for name, entry in asked.knobs.items():
            self._entry(name, entry)
        for name, value in carried.items():
            self._value(name, value, "workload.engine_args")
        for name, value in asked.pinned.items():
            self._value(name, value, "set")
        for name, value in asked.baseline.items():
            row = self._value(name, value, "baseline")
            if row is not None and self._changes_answers(row, value):
                self.lossy[row.name] = value
        for number, values in enumerate(asked.first):
            for name, value in values.items():
                row = self._value(name, value, f"first[{number}]")
                if row is not None:
                    self._ask_consent(row, [value], f"first[{number}]", name)

    def _row(self, name: str) -> KnobRow | None:
        """The knob of that name: asked for already, curated, or the flag of that name; None where the engine has none."""
        row = self.rows.get(name) or self.table.knobs.get(name)
        if row is not None:
            return row
        head, _, key = name.partition(".")
        row = KnobRow(name=name, flag=name)
        if not row.is_in(self.table.flags) or (key and self.table.flags[head].type != "json"):
            return None
        return self._added(row)

    def _added(self, row: KnobRow) -> KnobRow:
        """A knob that nobody curated: whether it changes answers, and what the engine does without it."""
        flag = self._flag(row)
        lossy = row.lossy or self.table.is_lossy(row.env or row.flag)
        candidates = (row.default, self.variables.get(row.env), self.own.get(row.name), flag.default if flag else None)
        default = next((value for value in candidates if value is not None and not isinstance(value, (list, dict))), None)
        row = replace(row, lossy=lossy, default=default, optional=default is None, matters=1.0)
        is_switch = flag is not None and flag.type in SWITCHES and default is not None
        return row if is_switch else replace(row, values=(default,))

    def _value(self, written: str, value: Value, where: str) -> KnobRow | None:
        """Let a named configuration have its value; None where there is no such knob, which others report."""
        name = written if written in self.rows or written in self.table.knobs else plain(written)
        row = self._row(name)
        if row is not None:
            try:
                self.rows[name] = row = self._with(row, [value])
            except Refusal as refusal:
                self.faults.append(Fault(where=where, field=written, value=shown(value), rule=str(refusal)))
        return row

    def _with(self, row: KnobRow, values: Sequence[Any]) -> KnobRow:
        """The knob with these values too; it is offered whatever is known of model and machine, because somebody wants it.

        Raises:
            Refusal: the engine does not take one of them.
        """
        flag = self._flag(row)
        taken = [value if self._is_offered(row, value) else converted(value, flag) for value in values]
        if row.grid and (wrong := [value for value in taken if not _is_number(value)]):
            raise Refusal(f"{row.name} is a number, and {shown(wrong[0])} is none")
        bound = self.facts.get(row.most) if row.most else None
        if isinstance(bound, int) and bound and any(isinstance(value, (int, float)) and value > bound for value in taken):
            raise Refusal(f"{row.name} is at most {bound}: there are no more {row.most}")
        here: tuple[Value, ...] = (*row.grid, *row.values, default_of(row, self.table, self.own))
        more = [value for value in dict.fromkeys(taken) if not any(_same(value, other) for other in here)]
        only = {value: condition for value, condition in row.only.items() if not any(_same(value, named) for named in taken)}
        when = row.when if row.name in self.offered or row.name not in self.table.knobs else ""
        row = replace(row, needs="", when=when, only=only)
        if taken and row.name in self.table.knobs and row.name not in self.offered:  # nothing here speaks for its other values
            usual = default_of(row, self.table, self.own)
            row = replace(row, values=tuple(value for value in row.values if any(_same(value, other) for other in (usual, *taken))))
        if not more:
            return row
        if row.grid:
            return replace(row, grid=tuple(sorted((*row.grid, *more))), most="")  # type: ignore[arg-type]
        if not row.values:  # on or off
            return row
        row = replace(row, values=(*row.values, *more), most="")
        return row if row.name in self.table.knobs else _settled(row)

    def _flag(self, row: KnobRow) -> FlagRow | None:
        """What the table says of its values; nothing of variables and of keys inside a JSON value."""
        return None if row.env or row.key else self.table.flags[row.setting]

    def _is_offered(self, row: KnobRow, value: Any) -> bool:
        return any(_same(value, other) for other in (*self.offered.get(row.name, ()), *row.grid, *row.values, row.left_out))

    def _entry(self, name: str, entry: Mapping[str, Any]) -> None:
        """An entry of `space.knobs`."""
        before = len(self.faults)
        curated = name in self.table.knobs
        for key in entry:
            if key not in KNOB_KEYS:
                self._fault(name, key, "unknown key", suggestion(key, KNOB_KEYS))
            elif curated and key not in ("values", *RANGE_KEYS):
                self._fault(name, key, "AutoScout has this knob already: give it values or a range only")
        row = self.table.knobs[name] if curated else self._declared(name, entry)
        if row is None or len(self.faults) > before:
            return
        try:
            values = self._values(row, entry)
            self.rows[name] = row = self._with(row, values)
        except Refusal as refusal:
            self._fault(name, "values", str(refusal), value=entry.get("values", ""))
        except SpaceError as error:
            self.faults += [replace(fault, where="space") for fault in error.faults]
        else:
            self._ask_consent(row, values, "space", f"knobs.{name}.values")

    def _fault(self, name: str, key: str, rule: str, fix: str = "", value: object = "") -> None:
        field = f"knobs.{name}.{key}" if key else f"knobs.{name}"
        self.faults.append(Fault(where="space", field=field, value=shown(value) if value != "" else "", rule=rule, fix=fix))

    def _declared(self, name: str, entry: Mapping[str, Any]) -> KnobRow | None:
        """A flag or a variable as a knob."""
        common: dict[str, Any] = {
            "default": entry.get("default"),
            "when": str(entry.get("when") or ""),
            "unit": str(entry.get("unit") or ""),
            "trades": str(entry.get("help") or ""),
            "lossy": entry.get("lossy") is True,
            "log": entry.get("log") is True,
        }
        if "env" in entry:
            if "flag" in entry:
                self._fault(name, "flag", "flag and env exclude each other", "Keep one")
            if not _VARIABLE.fullmatch(str(entry["env"])):
                self._fault(name, "env", "is no name of a variable", value=entry["env"])
            if carrier := next((row.name for row in self.table.knobs.values() if row.env == entry["env"]), ""):
                self._fault(name, "env", f"the knob {carrier} has this variable", f"Name {carrier} instead")
                return None
            return self._added(KnobRow(name=name, env=str(entry["env"]), **common))
        path = plain(str(entry.get("flag") or name))
        head, _, key = path.partition(".")
        flag = self.table.flags.get(head)
        carrier = next((row.name for row in self.table.knobs.values() if (row.flag or row.name) == path), "")
        place = "flag" if "flag" in entry else ""
        if flag is None:
            near = suggestion(head, [*self.table.flags, *self.table.knobs])
            rule = f"{self.table.engine} {self.table.version} has no flag {shown(head)}"
            self._fault(name, place, rule, f"{near} A variable is given as env: NAME".strip())
        elif key and flag.type != "json":
            self._fault(name, place, f"{flag.flag} has no keys: its value is no JSON object")
        elif not KnobRow(name=name, flag=path).is_in(self.table.flags):
            self._fault(
                name, place, f"{flag.flag} of {self.table.engine} {self.table.version} has no key {key}", suggestion(key, flag.keys)
            )
        elif carrier and name != path:
            self._fault(name, place, f"the knob {carrier} has this flag", f"Name {carrier} instead")
        else:
            return self._added(KnobRow(name=name, flag=path, **common))
        return None

    def _values(self, row: KnobRow, entry: Mapping[str, Any]) -> list[Any]:
        """The values of an entry; all that a flag takes where the entry says none and the table lists them."""
        curated = row.name in self.table.knobs
        if "values" in entry:
            if not isinstance(entry["values"], list) or not entry["values"]:
                raise Refusal("values must be a list")
            return list(entry["values"])
        if "range" in entry and curated:
            ends = entry["range"]
            if not isinstance(ends, list) or len(ends) != 2:
                raise Refusal("a range has two ends")
            return ends if row.grid else []
        if "range" in entry:
            knob = read_knob(row.name, {key: entry[key] for key in RANGE_KEYS if key in entry})
            if len(knob.values) > MOST_VALUES:
                raise Refusal(f"a range of an added knob has at most {MOST_VALUES:,} values: give a step, or log: true")
            return list(knob.values)
        flag = self._flag(row)
        if curated:
            return []
        if flag is not None and flag.type in SWITCHES:
            return [True, False] if flag.type == "bool" else [True]
        if flag is not None and flag.type == "choice":
            return list(flag.choices)
        raise Refusal("an added knob needs values or a range")

    def _changes_answers(self, row: KnobRow, value: Value) -> bool:
        """Whether this value changes what the model answers, and nobody has allowed that."""
        allowed = self.consent is True or (not isinstance(self.consent, bool) and row.name in self.consent)
        return row.lossy and not allowed and not _same(value, default_of(row, self.table, self.own))

    def _ask_consent(self, row: KnobRow, values: Sequence[Value], where: str, name: str) -> None:
        for value in values:
            self.is_lossy |= row.lossy and not _same(value, default_of(row, self.table, self.own))
            if self._changes_answers(row, value):
                fix = (
                    f"Allow it with --allow-lossy, or this knob alone with --free {row.name}: answers are then compared with the default's"
                )
                self.faults.append(Fault(where=where, field=name, value=shown(value), rule="changes what the model answers", fix=fix))


def _settled(row: KnobRow) -> KnobRow:
    """An added knob whose values are all numbers is ordered; `auto` stands for a flag that is left out."""
    if all(map(_is_number, row.values)):
        return replace(row, values=(), grid=tuple(sorted(row.values)))  # type: ignore[arg-type]
    if row.optional and AUTO in row.values:
        return replace(row, optional=False, left_out=AUTO, values=tuple(value for value in row.values if value is not None))
    return row


def consent_of(free: Collection[Any], allow_lossy: bool) -> bool | frozenset[str]:
    """What a workload allows: everything, or the knobs that it frees by name."""
    return allow_lossy or frozenset(str(name) for name in free if name != ALL)


def carried_knobs(engine_args: Mapping[str, Any], table: EngineTable, pinned: Mapping[str, Value]) -> dict[str, Value]:
    """Knobs that the workload's own settings name: whole flags, and keys inside JSON values.

    Those of a JSON value whose meaning is `pinned` to another one are left out.
    """
    carried = _carried(engine_args, table)
    changed = {row.setting for row, value in carried if row.leads and pinned.get(row.name, value) != value}
    return {row.name: value for row, value in carried if row.setting not in changed}


def _carried(engine_args: Mapping[str, Any], table: EngineTable) -> list[tuple[KnobRow, Any]]:
    knobs = []
    for written, value in engine_args.items():
        for row in table.knobs.values():
            if row.setting != plain(written):
                continue
            inner = _inside(value, row.key) if row.key else value
            if inner is not None and not isinstance(inner, (dict, list)) and (not row.key or _leads(row, value, table)):
                knobs.append((row, inner))
    return knobs


def _leads(row: KnobRow, value: Any, table: EngineTable) -> bool:
    """Whether the knob that gives a JSON value its meaning is named in it, where there is one."""
    leaders = [other for other in table.knobs.values() if other.setting == row.setting and other.leads]
    return all(_inside(value, leader.key) is not None for leader in leaders)


def _inside(value: Any, key: str) -> Any:
    """The value of a dotted key inside a JSON value; None where there is none."""
    for part in key.split("."):
        value = as_object(value).get(part)
    return value


def as_object(value: Any) -> Mapping[str, Any]:
    """The object that a JSON value is; an empty one for anything else."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, Mapping) else {}


def uncarried(engine_args: Mapping[str, Any], table: EngineTable, config: Mapping[str, Value]) -> dict[str, Any]:
    """The workload's own settings less what knobs of a configuration carry."""
    settings = {plain(name): as_object(value) or value for name, value in engine_args.items()}
    for row, _ in _carried(engine_args, table):
        if not row.key:
            settings.pop(row.setting, None)
            continue
        settings[row.setting] = _without(settings.get(row.setting, {}), row.key.split("."))
    for row in table.knobs.values():
        if row.leads and row.setting in settings and config.get(row.name, row) == row.left_out:
            del settings[row.setting]  # what accompanies it means nothing without it
    return {name: value for name, value in settings.items() if value != {}}


def knobs_of(settings: Mapping[str, Any], table: EngineTable) -> tuple[dict[str, Value], dict[str, Any]]:
    """Settings by the names of a table as values of knobs, and the settings that remain."""
    knobs = {row.name: value for row, value in _carried(settings, table)}
    return knobs, uncarried(settings, table, knobs)


def _without(value: Mapping[str, Any], path: Sequence[str]) -> dict[str, Any]:
    first, *rest = path
    copy = dict(value)
    if rest and isinstance(copy.get(first), Mapping):
        copy[first] = _without(copy[first], rest)
        if copy[first]:
            return copy
    copy.pop(first, None)
    return copy


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _same(value: Any, other: Any) -> bool:
    """Whether both mean the same value: 8 and 8.0 do, 1 and true do not."""
    if _is_number(value) and _is_number(other):
        return bool(value == other)
    if isinstance(value, str) and isinstance(other, str):  # a launch is read into strings that know their place
        return value == other
    return type(value) is type(other) and value == other


__all__ = ["KNOB_KEYS", "Refusal", "Widening", "as_object", "carried_knobs", "consent_of", "converted", "knobs_of", "uncarried", "whole"]
