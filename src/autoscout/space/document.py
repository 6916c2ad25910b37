"""YAML documents that remember the line of every value.

Differs from plain PyYAML as people expect of YAML 1.2: `on`, `off`, `yes` and `no` are text, `1e-5` is a number, dates are
text, and a key may occur once in a mapping.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from autoscout.common.suggest import suggestion
from autoscout.core.errors import ConfigError, Fault


class _Loader(yaml.SafeLoader):
    """SafeLoader with the plain scalars of the YAML 1.2 core schema."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - the way PyYAML wants it


_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F]+)$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"^[-+]?(?:(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9]+|[0-9][0-9_]*(?=[eE]))(?:[eE][-+]?[0-9]+)?|\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
    list("-+0123456789."),
)
_Loader.add_implicit_resolver("tag:yaml.org,2002:merge", re.compile(r"^(?:<<)$"), ["<"])


def _float(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> float:
    text = str(loader.construct_scalar(node)).replace("_", "").lower()
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


_Loader.add_constructor("tag:yaml.org,2002:float", _float)


@dataclass(frozen=True)
class Item:
    """One value of a document, with its place in the file."""

    node: yaml.Node
    where: str  # name of the document
    field: str = ""  # dotted path inside it

    @property
    def place(self) -> str:
        """`file:line`, as far as known."""
        mark = self.node.start_mark
        if mark is None or mark.line < 0:
            return self.where
        return f"{self.where}:{mark.line + 1}" if self.where else f"line {mark.line + 1}"

    @property
    def value(self) -> Any:
        """The plain value."""
        loader = _Loader("")
        try:
            return loader.construct_document(self.node)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise ConfigError(self.fault(f"cannot be read: {str(error).splitlines()[0]}")) from error
        finally:
            loader.dispose()

    def fault(self, rule: str, fix: str = "", shown: bool = True) -> Fault:
        """A fault of this value."""
        found = ""
        if shown:
            if isinstance(self.node, yaml.ScalarNode):
                found = self.node.value if len(self.node.value) <= 200 else self.node.value[:200] + "..."
                found = found or "nothing"
            else:
                found = "a list" if isinstance(self.node, yaml.SequenceNode) else "a mapping"
        return Fault(where=self.place, field=self.field, value=found, rule=rule, fix=fix)

    def entries(self, faults: list[Fault]) -> dict[str, Item]:
        """The values of a mapping by key; what is not a mapping, not text or there twice goes to `faults`."""
        if not isinstance(self.node, yaml.MappingNode):
            faults.append(self.fault("must be a mapping", "Write key: value lines"))
            return {}
        found: dict[str, Item] = {}
        merged: dict[str, Item] = {}
        for key_node, value_node in self.node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                for source in value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]:
                    merged = {**Item(source, self.where, self.field).entries(faults), **merged}
                continue
            name = str(key_node.value) if isinstance(key_node, yaml.ScalarNode) else ""
            path = f"{self.field}.{name}" if self.field else name
            key = Item(key_node, self.where, path)
            if not name:
                faults.append(key.fault("a key must be text"))
            elif name in found:
                faults.append(Fault(where=key.place, field=path, rule="the key is there twice", fix=f"The first is at {found[name].place}"))
            else:
                found[name] = Item(value_node, self.where, path)
        return {**merged, **found}

    def items(self, faults: list[Fault]) -> list[Item]:
        """The values of a list; anything else goes to `faults`."""
        if not isinstance(self.node, yaml.SequenceNode):
            faults.append(self.fault("must be a list", "Write - item lines or [a, b]"))
            return []
        return [Item(node, self.where, f"{self.field}[{number}]") for number, node in enumerate(self.node.value)]


def unknown_keys(found: Mapping[str, Item], known: Iterable[str]) -> list[Fault]:
    """A fault for every key that nobody reads."""
    names = list(known)
    return [
        Fault(where=item.place, field=item.field, rule=f"there is no setting {key!r} here", fix=suggestion(key, names))
        for key, item in found.items()
        if key not in names
    ]


def compose(text: str, where: str) -> Item:
    """The root of a YAML document.

    Raises:
        ConfigError: the text is not YAML, or not one document; the fault names the line.
    """
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{where}:{mark.line + 1}" if mark else where
        rule = f"not valid YAML: {' '.join(part for part in (error.context, error.problem) if part)}"
        column = f"column {mark.column + 1}" if mark else ""
        raise ConfigError(Fault(where=place, rule=rule, value=column, fix="Check indentation, quotes and brackets there")) from error
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(
            Fault(where=where, rule=f"not valid YAML: {str(error).splitlines()[0] if str(error) else 'nested too deep'}")
        ) from error
    if node is None:
        raise ConfigError(Fault(where=where, rule="the document is empty", fix="Describe at least one knob under knobs:"))
    return Item(node, where)


def load(path: Path) -> Item:
    """The root of a YAML file.

    Raises:
        ConfigError: the file cannot be read or is not YAML.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise ConfigError(Fault(where=str(path), rule=f"cannot be read: {reason}", fix="Check the path")) from error
    return compose(text, str(path))


def from_plain(value: Any, where: str) -> Item:
    """A document from values that were parsed already; lines are not known then.

    Raises:
        ConfigError: a value is of a kind that YAML does not have.
    """
    try:
        return Item(yaml.SafeDumper(io.StringIO()).represent_data(value), where)
    except yaml.YAMLError as error:
        raise ConfigError(Fault(where=where, rule=f"holds something that YAML cannot: {error}")) from error
