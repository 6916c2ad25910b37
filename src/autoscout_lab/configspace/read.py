"""Read the JSON that ConfigSpace writes (`ConfigurationSpace.to_json`, format 0.4 and before)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from autoscout.core.config import Value
from autoscout.core.errors import ConfigError, Fault, SpaceError
from autoscout.space.constraint import Constraint
from autoscout.space.interchange.source import Source, read_json
from autoscout.space.knobs import Choice, Flag, Grid, Knob
from autoscout.space.parser import name_text, value_text
from autoscout.space.space import Space

Read = TypeVar("Read")

META = "autoscout"
"""Key under which the export keeps what ConfigSpace has no field for: in `meta` of each knob, and of the whole file."""
_RELATIONS = {"RELATION_EQ": "==", "RELATION_LT": "<", "RELATION_LE": "<=", "RELATION_GT": ">", "RELATION_GE": ">="}
_LEGACY = {"LT": "<", "EQ": "==", "GT": ">"}
_CLAUSES = {"CLAUSE_LT": "<", "CLAUSE_LE": "<=", "CLAUSE_GT": ">", "CLAUSE_GE": ">="}


def read_configspace(source: Source, points: int = 101) -> Space:
    """A space from ConfigSpace JSON.

    Categories, ordinals, constants and whole ranges come over exactly; a fractional range becomes `points` values and its
    default. Weights and the shapes of normal and beta distributions have no counterpart and are dropped. Conditions become
    `when`, forbidden clauses constraints.

    Raises:
        ConfigError: not such a file, or something in it is unknown; all faults at once.
        SpaceError: the space it describes is broken.
    """
    data, where = read_json(source)
    if not isinstance(data, Mapping) or not isinstance(data.get("hyperparameters"), list):
        raise ConfigError(Fault(where=where, rule="not ConfigSpace JSON: there is no list of hyperparameters"))
    return _Import(data, where, points).space()


@dataclass
class _Import:
    data: Mapping[str, Any]
    where: str
    points: int
    faults: list[Fault] = field(default_factory=list)
    ordinals: dict[str, list[Value]] = field(default_factory=dict)

    def space(self) -> Space:
        conditions = self._conditions_texts()
        knobs = []
        for number, item in enumerate(self.data["hyperparameters"]):
            field = f"hyperparameters[{number}]"
            knob = self._guarded(field, lambda item: self._knob(item, conditions), item)
            if knob is not None:
                knobs.append(knob)
        if self.own is not None:
            space = self._guarded(META, lambda own: self._as_exported(knobs, own), self.own) if not self.faults else None
        else:
            constraints = self._forbiddens()
            space = Space(knobs, constraints, {}) if not self.faults else None
        if space is None:
            raise ConfigError(self.faults)
        return space

    @staticmethod
    def _as_exported(knobs: Sequence[Knob], own: Mapping[str, Any]) -> Space:
        space = Space(knobs, [Constraint(**rule) for rule in own["constraints"]], own["facts"])
        return space.among(own["among"]) if "among" in own else space

    @property
    def own(self) -> Mapping[str, Any] | None:
        """The conditions and constraints as we exported them, if nobody has changed the file since."""
        meta = self.data.get(META)
        return meta if isinstance(meta, Mapping) and meta.get("digest") == digest(self.data) else None

    def _forbiddens(self) -> list[Constraint]:
        constraints = []
        for number, item in enumerate(self._list("forbiddens")):
            text = self._guarded(f"forbiddens[{number}]", self._forbidden, item)
            if text:
                constraints.append(Constraint(f"not ({text})"))
        return constraints

    def _list(self, name: str) -> list[Any]:
        items = self.data.get(name) or []
        if not isinstance(items, list):
            self.faults.append(Fault(where=self.where, field=name, value=repr(items), rule="must be a list"))
            return []
        return items

    def _guarded(self, field: str, read: Callable[[Any], Read], item: Any) -> Read | None:
        """What `read` makes of a part of the file; None, and a fault, where the part is not what ConfigSpace writes."""
        try:
            return read(item)
        except KeyError as error:
            self.faults.append(Fault(where=self.where, field=field, rule=f"lacks the key {error}"))
        except (SpaceError, ConfigError) as error:
            self.faults += [Fault(where=self.where, field=field, rule=fault.rule, value=fault.value) for fault in error.faults]
        except RecursionError:
            self.faults.append(Fault(where=self.where, field=field, rule="nested too deep"))
        except (TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
            rule = f"is not what ConfigSpace writes there: {error}"
            self.faults.append(Fault(where=self.where, field=field, value=repr(item), rule=rule, fix="Write it with ConfigSpace again"))
        return None

    def _conditions_texts(self) -> dict[str, str]:
        for item in self.data["hyperparameters"]:
            if isinstance(item, Mapping) and item.get("type") == "ordinal":
                sequence = item.get("sequence")
                self.ordinals[str(item.get("name"))] = sequence if isinstance(sequence, list) else []
        texts_by_child: dict[str, list[str]] = {}
        for number, item in enumerate(self._list("conditions")):
            text = self._guarded(f"conditions[{number}]", self._condition, item)
            child = self._guarded(f"conditions[{number}]", _child, item) if text else None
            if text and child:
                texts_by_child.setdefault(child, []).append(text)
        return {
            child: " and ".join(f"({text})" for text in texts) if len(texts) > 1 else texts[0] for child, texts in texts_by_child.items()
        }

    def _condition(self, item: Mapping[str, Any]) -> str:
        kind = item["type"]
        if kind in ("AND", "OR"):
            return f" {kind.lower()} ".join(f"({self._condition(part)})" for part in item["conditions"])
        parent = item["parent"]
        if kind == "IN":
            return _member(parent, item["values"])
        if kind in ("EQ", "NEQ"):
            return f"{name_text(parent)} {'==' if kind == 'EQ' else '!='} {value_text(item['value'])}"
        if kind in ("LT", "GT"):
            return self._ordered(parent, "<" if kind == "LT" else ">", item["value"])
        raise ConfigError(Fault(rule=f"unknown kind of condition {kind!r}"))

    def _ordered(self, name: str, sign: str, value: Value) -> str:
        """A comparison; on an ordinal the order is that of its sequence, whatever the values are."""
        sequence = self.ordinals.get(name)
        if sequence is None:
            return f"{name_text(name)} {sign} {value_text(value)}"
        if value not in sequence:
            raise ConfigError(Fault(rule=f"{value!r} is not in the sequence of {name!r}"))
        at = sequence.index(value)
        ranges = {"<": sequence[:at], "<=": sequence[: at + 1], ">": sequence[at + 1 :], ">=": sequence[at:]}
        return _member(name, ranges[sign])

    def _forbidden(self, item: Mapping[str, Any]) -> str:
        kind = item["type"]
        if kind in ("AND", "OR"):
            return f" {kind.lower()} ".join(f"({self._forbidden(part)})" for part in item["clauses"])
        if kind == "EQUALS":
            return f"{name_text(item['name'])} == {value_text(item['value'])}"
        if kind == "IN":
            return _member(item["name"], item["values"])
        if kind in _CLAUSES:
            return self._ordered(item["name"], _CLAUSES[kind], item["value"])
        sign = _RELATIONS.get(kind) or (_LEGACY.get(item["lambda"]) if kind == "RELATION" else None)
        if sign:
            return f"{name_text(item['left'])} {sign} {name_text(item['right'])}"
        raise ConfigError(Fault(rule=f"unknown kind of forbidden clause {kind!r}"))

    def _knob(self, item: Mapping[str, Any], conditions: Mapping[str, str]) -> Knob:
        name, kind = item["name"], item["type"]
        meta = item.get("meta") if isinstance(item.get("meta"), Mapping) else {}
        own = dict((meta or {}).get(META, {}))
        common: dict[str, Any] = {key: own[key] for key in ("unit", "help", "restart", "sparse") if key in own}
        common["when"] = own.get("when") if self.own is not None else conditions.get(name)
        default = item.get("default_value", item.get("default"))
        if self.own is not None and "default" in own:
            default = own["default"]
        if kind == "constant":
            return Choice(name, [item["value"]], **common)
        if kind == "categorical":
            return self._listed(name, item["choices"], default, common)
        if kind == "ordinal":
            return self._listed(name, item["sequence"], default, common, ordinal=True, log=own.get("log", False))
        if kind.split("_")[0] in ("uniform", "normal", "beta") and kind.endswith(("_int", "_float")):
            return self._range(name, item, kind.endswith("_int"), default, common)
        raise ConfigError(Fault(rule=f"unknown type of hyperparameter {kind!r}"))

    def _listed(
        self, name: str, values: Sequence[Any], default: Any, common: Mapping[str, Any], ordinal: bool = False, log: bool = False
    ) -> Knob:
        start = values[0] if default is None and None not in values else default
        if list(values) == [False, True]:
            return Flag(name, default=start, **common)
        numeric = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
        if ordinal and numeric and list(values) == sorted(values) and len({type(value) for value in values}) == 1:
            return Grid(name, values=values, default=start, log=log, **common)
        return Choice(name, values, default=start, **common)

    def _range(self, name: str, item: Mapping[str, Any], whole: bool, default: Any, common: Mapping[str, Any]) -> Knob:
        low, high = item["lower"], item["upper"]
        if low is None or high is None:
            raise ConfigError(Fault(rule=f"{name!r} has no bounds, and a space is finite"))
        options: dict[str, Any] = dict(common)
        if default is not None:
            options["default"] = default
        if whole:
            return Grid(name, int(low), int(high), step=int(item.get("q") or 1), log=bool(item.get("log")), **options)
        if item.get("q"):
            return Grid(name, float(low), float(high), step=float(item["q"]), log=bool(item.get("log")), **options)
        return Grid(name, float(low), float(high), points=self.points, log=bool(item.get("log")), **options)


def digest(data: Mapping[str, Any]) -> str:
    """Names the part of a ConfigSpace file that says what is allowed."""
    parts = {key: data.get(key, []) for key in ("hyperparameters", "conditions", "forbiddens")}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _child(item: Mapping[str, Any]) -> str:
    return str(item["child"] if "child" in item else _child(item["conditions"][0]))


def _member(name: str, values: Sequence[Value]) -> str:
    return f"{name_text(name)} in ({', '.join(value_text(value) for value in values)}{',' if values else ''})" if values else "False"
