"""Read and write spaces as YAML blocks, every fault at its line.

facts: {gpus: 8, layers: 32}
knobs:
  tp: {values: [1, 2, 4, 8], sparse: true}
  sp: {type: bool, when: tp > 1}
  bucket_mb: {range: [1, 512], log: true, when: tp < gpus, default: 25, unit: MB}
constraints:
  - layers % tp == 0
  - {rule: tp <= gpus, why: no more ranks than devices}

`among: [{tp: 1, sp: false}, ...]` lists the valid configurations one by one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from autoscout.common.document import Item, PlainDumper, compose, from_plain, load, load_json, unknown_keys
from autoscout.common.text import suggestion
from autoscout.core.config import Value
from autoscout.core.errors import AutoScoutError, ConfigError, Fault, SpaceError
from autoscout.space import tree
from autoscout.space.algebra import Table
from autoscout.space.constraint import Constraint, build, meant
from autoscout.space.knobs import Choice, Flag, Grid, Knob, as_fraction
from autoscout.space.listed import Listed
from autoscout.space.parser import parse
from autoscout.space.space import Space

BLOCK_KEYS = ("facts", "knobs", "constraints", "among")
RANGE_KEYS = ("range", "step", "log", "base", "points")
KNOB_KEYS = ("type", "values", *RANGE_KEYS, "default", "sparse", "when", "unit", "restart", "help", "warning")
RULE_KEYS = ("rule", "why", "strict")
TYPES = ("bool", "choice", "int", "float")


def read_space(source: Path | str | Mapping[str, Any], facts: Mapping[str, Value] | None = None, where: str = "") -> Space:
    """A space from YAML (or JSON, which is YAML).

    Args:
        source: A path, YAML text (it has several lines or begins with a brace), or a mapping that was parsed already. A
            document that keeps the block under `space` or `search_space` is fine too, and so are Optuna's
            `study.db`, and `.json` files of ConfigSpace, vLLM sweeps and DeepSpeed-style tuning spaces (see `autoscout.space.interchange`).
        facts: Facts of the task; they win over those in the block.
        where: What to call the source in messages.

    Raises:
        SpaceError: the block is wrong; all faults at once, each with file, line, field, rule and fix.
        ConfigError: the source cannot be read or is not YAML.
    """
    if isinstance(source, Mapping):
        root = from_plain(dict(source), where or "space")
    elif isinstance(source, str) and ("\n" in source or source.lstrip().startswith("{")):
        root = compose(source, where or "space")
    else:
        from autoscout.space.interchange.optuna import is_optuna, optuna_space  # which imports this module

        if is_optuna(Path(source)):
            return optuna_space(Path(source))
        if Path(source).suffix == ".json":
            from autoscout.space.interchange import read_foreign  # rarely needed, and slow to import

            foreign = read_foreign(Path(source), load_json(Path(source)), facts)
            if foreign is not None:
                return foreign
        root = load(Path(source))
        root = replace(root, where=where) if where else root
    if isinstance(root.node, yaml.MappingNode):
        keys = {key.value: value for key, value in root.node.value if isinstance(key, yaml.ScalarNode)}
        for name in ("space", "search_space"):
            if "knobs" not in keys and name in keys:
                return space_from_item(Item(keys[name], root.where, name), facts)
    return space_from_item(root, facts)


def space_from_item(root: Item, facts: Mapping[str, Value] | None = None) -> Space:
    """A space from a located value of a document (see `autoscout.common.document`)."""
    return _SpaceReader(root, facts or {}).space()


def read_knob(name: str, entry: Mapping[str, Any]) -> Knob:
    """A knob as a campaign describes it: `{"range": [1, 64], "log": True}`.

    Raises:
        SpaceError: all faults of the description.
    """
    reader = _SpaceReader(from_plain({"knobs": {name: dict(entry)}}, "space"), {})
    knob = reader.knob(name, reader.declared[name])
    if knob is None:
        raise SpaceError(reader.faults)
    return knob


class _SpaceReader:
    def __init__(self, root: Item, facts: Mapping[str, Value]) -> None:
        self.root = root
        self.faults: list[Fault] = []
        self.items: dict[str, Item] = {}  # field as knobs and spaces name it -> its place in the file
        self.block = root.entries(self.faults)
        self.faults += unknown_keys(self.block, BLOCK_KEYS)
        self.facts = {**self._facts(), **facts}
        self.declared = self.block["knobs"].entries(self.faults) if "knobs" in self.block else {}

    def space(self) -> Space:
        if not self.declared and not self.faults:
            self.faults.append(replace(self.root.fault("a space needs knobs", shown=False), fix="Describe at least one under knobs:"))
        knobs = [knob for name, item in self.declared.items() if (knob := self.knob(name, item)) is not None]
        constraints = self._constraints()
        among = self._among({knob.name: knob for knob in knobs}) if "among" in self.block else None
        self._expressions(constraints, {value for knob in knobs if isinstance(knob.values, tuple) for value in knob.values})
        if self.faults:
            raise SpaceError(sorted(self.faults, key=_line))
        try:
            space = Space(knobs, constraints, self.facts)
            return space if among is None else space.among(among)
        except SpaceError as error:
            raise SpaceError([self._placed(fault) for fault in error.faults]) from error

    def _facts(self) -> dict[str, Value]:
        facts: dict[str, Value] = {}
        entries = self.block["facts"].entries(self.faults) if "facts" in self.block else {}
        for name, item in entries.items():
            value = self._value(item)
            if isinstance(value, (bool, int, float, str)):
                facts[name] = value
            else:
                self.faults.append(item.fault("a fact must be a number, text, true or false"))
        return facts

    def _value(self, item: Item) -> Any:
        try:
            return item.value
        except ConfigError as error:
            self.faults += error.faults
            return None

    def knob(self, name: str, item: Item) -> Knob | None:
        """One knob; None where it has faults, which are added to the others."""
        before = len(self.faults)
        field = f"knobs.{name}"
        self.items[field] = item
        if isinstance(item.node, yaml.SequenceNode):
            entries: dict[str, Item] = {"values": item}
        elif isinstance(item.node, yaml.ScalarNode) and item.node.value == "bool":
            entries = {"type": item}
        else:
            entries = item.entries(self.faults)
            self.faults += unknown_keys(entries, KNOB_KEYS)
        for key, part in entries.items():
            self.items[f"{field}.{key}"] = part
        values = {key: self._value(part) for key, part in entries.items() if key in KNOB_KEYS}
        self._kinds(item, entries, values)
        if len(self.faults) > before:
            return None
        try:
            return self._build(name, entries, values)
        except AutoScoutError as error:
            self.faults += [self._placed(fault) for fault in error.faults]
            return None

    def _kinds(self, owner: Item, entries: Mapping[str, Item], values: Mapping[str, Any]) -> None:
        """Faults for settings of the wrong kind, and for settings that exclude each other."""
        for key, (kinds, words) in _KINDS.items():
            if key in values and not isinstance(values[key], kinds):
                self.faults.append(entries[key].fault(f"must be {words}"))
        form = [key for key in ("values", "range") if key in entries]
        kind = values.get("type")
        if "type" in values and kind not in TYPES:
            self.faults.append(entries["type"].fault(f"a type must be one of {', '.join(TYPES)}", suggestion(str(kind), TYPES)))
        elif len(form) == 2:
            self.faults.append(entries["range"].fault("values and range exclude each other", "Keep one", shown=False))
        elif kind == "bool" and form:
            self.faults.append(entries[form[0]].fault("a bool has no values or range of its own", "Remove one of the two", shown=False))
        elif not form and kind != "bool" and isinstance(owner.node, yaml.MappingNode):
            rule = "a knob needs values, a range, or type: bool"
            self.faults.append(owner.fault(rule, "Write values: [1, 2] or range: [1, 64]", shown=False))

    def _build(self, name: str, entries: Mapping[str, Item], values: dict[str, Any]) -> Knob:
        common: dict[str, Any] = {key: values[key] for key in ("unit", "restart", "help", "warning", "sparse") if key in values}
        if "when" in values:
            common["when"] = str(values["when"])
        kind = values.get("type")
        if kind == "bool":
            self._only(entries, ())
            return Flag(name, **common, **{key: values[key] for key in ("default",) if key in values})
        if "range" in values:
            return self._range(name, entries, values, common)
        listed = values["values"]
        if not isinstance(listed, list):
            raise SpaceError(entries["values"].fault("values must be a list", "Write [a, b]"))
        numeric = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in listed)
        if "default" in values:
            common["default"] = values["default"]
        if kind == "choice" or not numeric or not listed:
            self._only(entries, ())
            return Choice(name, listed, **common)
        self._only(entries, ("log",))
        converted = [as_fraction(value) for value in listed] if kind == "float" else listed
        return Grid(name, values=converted, log=values.get("log", False), **common)

    def _only(self, entries: Mapping[str, Item], allowed: Sequence[str]) -> None:
        faults = [
            entries[key].fault(f"{key} needs a range", "Remove it, or write range: [low, high]", shown=False)
            for key in RANGE_KEYS[1:]
            if key in entries and key not in allowed
        ]
        if faults:
            raise SpaceError(faults)

    def _range(self, name: str, entries: Mapping[str, Item], values: dict[str, Any], common: dict[str, Any]) -> Knob:
        ends = values["range"]
        if not isinstance(ends, list) or len(ends) != 2:
            raise SpaceError(entries["range"].fault("a range has two ends", "Write range: [low, high]"))
        low, high = (self._number(end, entries["range"]) for end in ends)
        if values.get("type") == "float":
            low, high = (as_fraction(end) for end in (low, high))
        if values.get("type") == "choice":
            raise SpaceError(entries["type"].fault("a range is not a choice", "Remove the type, or set sparse: true"))
        for key in ("step", "base", "default"):
            if key in values:
                values[key] = self._number(values[key], entries[key])
        common |= {key: values[key] for key in ("step", "log", "base", "points", "default") if key in values}
        return Grid(name, low, high, **common)

    def _number(self, value: Any, item: Item) -> Any:
        """A number, or the number that an expression over facts comes to."""
        if not isinstance(value, str):
            return value
        table = Table([])
        try:
            node = build(value, table, {name: table.constant(fact) for name, fact in self.facts.items()})
        except SpaceError as error:
            raise SpaceError([replace(fault, where=item.place, field=item.field) for fault in error.faults]) from error
        number = node.value
        if isinstance(number, bool) or not isinstance(number, (int, float)) or not math.isfinite(number):
            raise SpaceError(item.fault(f"`{value}` must come to a number", shown=False))
        return number

    def _constraints(self) -> list[Constraint]:
        constraints: list[Constraint] = []
        items = self.block["constraints"].items(self.faults) if "constraints" in self.block else []
        for number, item in enumerate(items):
            self.items[f"constraints[{number}]"] = item
            if isinstance(item.node, yaml.MappingNode):
                entries = item.entries(self.faults)
                self.faults += unknown_keys(entries, RULE_KEYS)
                values = {key: self._value(part) for key, part in entries.items()}
            else:
                entries, values = {"rule": item}, {"rule": self._value(item)}
            rule, why, strict = values.get("rule"), values.get("why", ""), values.get("strict", False)
            if isinstance(rule, bool):
                rule = str(rule)
            if not isinstance(rule, str) or not isinstance(why, str) or not isinstance(strict, bool):
                self.faults.append(item.fault("a constraint is an expression, or {rule: expression, why: text}", shown=False))
                continue
            constraints.append(Constraint(rule, why=why, strict=strict, where=entries["rule"].place))
        return constraints

    def _among(self, knobs: Mapping[str, Knob]) -> list[dict[str, Value]]:
        """The listed configurations; a whole number stands for the fraction where a knob holds fractions."""
        configs: list[dict[str, Value]] = []
        self.items["among"] = self.block["among"]
        for number, item in enumerate(self.block["among"].items(self.faults)):
            self.items[f"among[{number}]"] = item
            config: dict[str, Value] = {}
            for name, part in item.entries(self.faults).items():
                value = self._value(part)
                if not isinstance(value, (bool, int, float, str)) and value is not None:
                    self.faults.append(part.fault("a value must be a number, text, true, false or null"))
                elif isinstance(value, float) and not math.isfinite(value):
                    self.faults.append(part.fault("a number must be finite"))
                elif type(value) is int and name in knobs and value not in knobs[name] and as_fraction(value) in knobs[name]:
                    config[name] = float(value)
                else:
                    config[name] = value
            configs.append(config)
        return configs

    def _expressions(self, constraints: Sequence[Constraint], texts: Collection[Value]) -> None:
        """Syntax, unknown names and circles, so that they are reported together with the faults of knobs."""
        names = [*self.declared, *self.facts]
        parents: dict[str, list[str]] = {name: [] for name in self.declared}
        for name in self.declared:
            item = self.items.get(f"knobs.{name}.when")
            if item is not None and isinstance(item.node, yaml.ScalarNode):
                read = self._names(item.node.value, item.place, item.field, names, texts)
                parents[name] = [other for other in read if other in parents]
        for number, constraint in enumerate(constraints):
            self._names(str(constraint.rule), constraint.where, self.items[f"constraints[{number}]"].field, names, texts)
        for name in self.declared:
            if name in self.facts:
                self.faults.append(self.declared[name].fault("a knob and a fact must not share a name", "Rename one", shown=False))
        try:
            tree.order(list(self.declared), parents)
        except SpaceError as error:
            self.faults += [self._placed(fault) for fault in error.faults]

    def _names(self, text: str, place: str, field: str, declared: Sequence[str], texts: Collection[Value]) -> list[str]:
        try:
            names = list(parse(text).names())
        except SpaceError as error:
            self.faults += [replace(fault, where=place, field=field) for fault in error.faults]
            return []
        for name, at in names:
            if name not in declared:
                rule = f"column {at + 1}: {name!r} is neither a knob nor a fact"
                self.faults.append(Fault(where=place, field=field, value=f"`{text}`", rule=rule, fix=meant(name, declared, texts)))
        return [name for name, _ in names]

    def _placed(self, fault: Fault) -> Fault:
        """The fault with file, line and full path of what it speaks of."""
        first = fault.field.split(", ")[0]
        item = self.items.get(first) or self.items.get(first.rpartition(".")[0])
        if item is None or fault.where:
            return fault
        prefix = f"{self.root.field}." if self.root.field and not fault.field.startswith(self.root.field) else ""
        return replace(fault, where=item.place, field=f"{prefix}{fault.field}")


_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "when": ((str, bool), "an expression"),
    "unit": ((str,), "text"),
    "help": ((str,), "text"),
    "warning": ((str,), "text"),
    "sparse": ((bool,), "true or false"),
    "restart": ((bool,), "true or false"),
    "log": ((bool,), "true or false"),
    "points": ((int,), "a whole number"),
}


def _line(fault: Fault) -> tuple[int, str]:
    number = fault.where.rpartition(":")[2].removeprefix("line ")
    return (int(number) if number.isdigit() else 0, fault.field)


class _Flow(dict[str, Any]):
    """A mapping to be written on one line."""


class _Dumper(PlainDumper):
    """Writes knobs on one line each."""


_Dumper.add_representer(_Flow, lambda dumper, data: dumper.represent_mapping("tag:yaml.org,2002:map", data, flow_style=True))


def write_space(space: Space, path: Path | None = None) -> str:
    """The YAML block of a space; also written to `path` when given. Reading it back gives an equal space.

    Raises:
        SpaceError: a constraint is a Python function, which a file cannot hold.
    """
    functions = [constraint for constraint in space.constraints if not isinstance(constraint.rule, str)]
    if functions:
        rule = "a Python function cannot be written to a file"
        raise SpaceError([Fault(field=c.text, rule=rule, fix="State it as an expression") for c in functions])
    data: dict[str, Any] = {"facts": _Flow(space.facts)} if space.facts else {}
    data["knobs"] = {name: _Flow(space.knobs[name].spec()) for name in space.declared}
    if space.constraints:
        data["constraints"] = [_rule(constraint) for constraint in space.constraints]
    if isinstance(space, Listed):
        data["among"] = [_Flow(config) for config in space.enumerate()]
    text = yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000)
    if path is not None:
        path.write_text(text, encoding="utf-8")
    return text


def _rule(constraint: Constraint) -> Any:
    if not constraint.why and not constraint.strict:
        return constraint.rule
    return _Flow(
        rule=constraint.rule, **({"why": constraint.why} if constraint.why else {}), **({"strict": True} if constraint.strict else {})
    )
