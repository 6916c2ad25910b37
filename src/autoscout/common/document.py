"""YAML documents that remember the line of every value.

Differs from plain PyYAML as people expect of YAML 1.2: `on`, `off`, `yes` and `no` are text, `1e-5` is a number, dates are
text, and a key may occur once in a mapping. Aliases are followed, within bounds: a document that repeats itself without end, or
a short one that says a billion things, is refused.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from autoscout.common.text import suggestion
from autoscout.core.errors import ConfigError, Fault

MOST_BYTES = 64 * 2**20  # of one document, unpacked; what is larger is a table or a mistake
MOST_YAML_BYTES = 16 * 2**20  # of one YAML document, whose parser takes about five seconds for each MiB
MOST_ALIASED = 100_000  # values that the aliases of a YAML document stand for
MOST_DIGITS = 300  # of a whole number: what a fraction can still hold
MOST_DEPTH = 100  # mappings and lists inside each other


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


class PlainDumper(yaml.SafeDumper):
    """Writes what this module reads back as it was: text that looks like 1e-5 in quotes, and what occurs twice twice."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - signature of PyYAML
        return True


PlainDumper.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+$"), list("-+0123456789"))


def _float(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> float:
    text = str(loader.construct_scalar(node)).replace("_", "").lower()
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


def _int(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    _check_digits(str(node.value))
    return loader.construct_yaml_int(node)


def _check_digits(text: str) -> str:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"a number has at most {MOST_DIGITS} digits")
    return text


_Loader.add_constructor("tag:yaml.org,2002:float", _float)
_Loader.add_constructor("tag:yaml.org,2002:int", _int)


_UNREADABLE = (yaml.YAMLError, ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError)
"""What PyYAML raises for a value that is not what its tag says: `!!bool x` is a KeyError, `!!timestamp x` an AttributeError."""


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deep"
    if isinstance(error, (KeyError, AttributeError, IndexError)):
        return "it is not what its tag says"
    return next(iter(str(error).splitlines()), type(error).__name__)


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
        except _UNREADABLE as error:
            raise ConfigError(self.fault(f"cannot be read: {_reason(error)}")) from error
        finally:
            loader.dispose()

    def fault(self, rule: str, fix: str = "", shown: bool = True) -> Fault:
        """A fault of this value."""
        excerpt = ""
        if shown:
            if isinstance(self.node, yaml.ScalarNode):
                excerpt = self.node.value if len(self.node.value) <= 200 else self.node.value[:200] + "..."
                excerpt = excerpt or "nothing"
            else:
                excerpt = "a list" if isinstance(self.node, yaml.SequenceNode) else "a mapping"
        return Fault(where=self.place, field=self.field, value=excerpt, rule=rule, fix=fix)

    def entries(self, faults: list[Fault]) -> dict[str, Item]:
        """The values of a mapping by key; what is not a mapping, not text or there twice goes to `faults`."""
        if not isinstance(self.node, yaml.MappingNode):
            faults.append(self.fault("must be a mapping", "Write key: value lines"))
            return {}
        entries: dict[str, Item] = {}
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
            elif name in entries:
                faults.append(
                    Fault(where=key.place, field=path, rule="the key is there twice", fix=f"The first is at {entries[name].place}")
                )
            else:
                entries[name] = Item(value_node, self.where, path)
        return {**merged, **entries}

    def items(self, faults: list[Fault]) -> list[Item]:
        """The values of a list; anything else goes to `faults`."""
        if not isinstance(self.node, yaml.SequenceNode):
            faults.append(self.fault("must be a list", "Write - item lines or [a, b]"))
            return []
        return [Item(node, self.where, f"{self.field}[{number}]") for number, node in enumerate(self.node.value)]


def unknown_keys(entries: Mapping[str, Item], keys: Iterable[str]) -> list[Fault]:
    """A fault for every key that nobody reads."""
    names = list(keys)
    return [
        Fault(where=item.place, field=item.field, rule=f"there is no setting {key!r} here", fix=suggestion(key, names))
        for key, item in entries.items()
        if key not in names
    ]


def compose(text: str, where: str) -> Item:
    """The root of a YAML document.

    Raises:
        ConfigError: the text is not YAML, or not one document; the fault names the line.
    """
    if len(text) > MOST_YAML_BYTES:
        rule = f"a YAML document has at most {MOST_YAML_BYTES // 2**20} MiB"
        raise ConfigError(Fault(where=where, rule=rule, fix="Give a smaller file"))
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{where}:{mark.line + 1}" if mark else where
        rule = f"not valid YAML: {' '.join(part for part in (error.context, error.problem) if part)}"
        column = f"column {mark.column + 1}" if mark else ""
        raise ConfigError(Fault(where=place, rule=rule, value=column, fix="Check indentation, quotes and brackets there")) from error
    except _UNREADABLE as error:
        raise ConfigError(Fault(where=where, rule=f"not valid YAML: {_reason(error)}")) from error
    if node is None:
        raise ConfigError(Fault(where=where, rule="the document is empty", fix="Describe at least one knob under knobs:"))
    return _bounded(Item(node, where))


def _bounded(root: Item) -> Item:
    """The document, when it is small enough with its aliases written out."""
    sizes: dict[int, int] = {}  # id of a node -> values below it, itself included
    depths: dict[int, int] = {}
    open_nodes: set[int] = set()  # those that contain the current one
    waiting: list[tuple[yaml.Node, bool]] = [(root.node, False)]
    while waiting:
        node, entered = waiting.pop()
        inside = [part for item in node.value for part in (item if isinstance(item, tuple) else (item,))] if _is_nested(node) else []
        if entered:
            open_nodes.discard(id(node))
            sizes[id(node)] = 1 + sum(sizes[id(part)] for part in inside)
            depths[id(node)] = 1 + max((depths[id(part)] for part in inside), default=0)
            rule = ""
            if sizes[id(node)] > len(sizes) + MOST_ALIASED:
                rule = f"aliases may stand for at most {MOST_ALIASED:,} values"
            elif depths[id(node)] > MOST_DEPTH:
                rule = f"values are nested at most {MOST_DEPTH} deep"
            if rule:
                raise ConfigError(Item(node, root.where).fault(rule, "Write less, or split the file", shown=False))
        elif id(node) in open_nodes:
            raise ConfigError(Item(node, root.where).fault("a value must not contain itself", "Remove the alias inside it", shown=False))
        elif id(node) not in sizes:
            if isinstance(node, yaml.ScalarNode) and _HALF.search(node.value):
                _join_halves(Item(node, root.where))
            open_nodes.add(id(node))
            waiting.append((node, True))
            waiting.extend((part, False) for part in reversed(inside) if id(part) not in sizes)
    return root


_HALF = re.compile("[\ud800-\udfff]")


def _join_halves(item: Item) -> None:
    """JSON writes some characters as two escapes (`"\\ud83d\\ude00"`), which YAML takes for two characters that no file can hold."""
    try:
        item.node.value = str(item.node.value).encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        rule, fix = "half of a character can be written into no file", "Write the character itself, or both of its halves"
        raise ConfigError(item.fault(rule, fix, shown=False)) from error


def _is_nested(node: yaml.Node) -> bool:
    return isinstance(node, (yaml.MappingNode, yaml.SequenceNode))


def load(path: Path) -> Item:
    """The root of a YAML file.

    Raises:
        ConfigError: the file cannot be read or is not YAML.
    """
    return compose(read_text(path), str(path))


def load_json(path: Path) -> Any:
    """The content of a JSON file, gzipped where its name ends in `.gz`.

    Raises:
        ConfigError: the file cannot be read, is not JSON, or is too large or too deep.
    """
    return parse_json(read_text(path), str(path))


def parse_json(text: str, where: str) -> Any:
    """The content of JSON text.

    Raises:
        ConfigError: it is not JSON; the fault names the line.
    """
    fix = "Check commas, quotes and brackets there"
    try:
        content = json.loads(text, parse_int=lambda digits: int(_check_digits(digits)))
    except json.JSONDecodeError as error:
        raise ConfigError(Fault(where=f"{where}:{error.lineno}", rule=f"not valid JSON: {error.msg}", fix=fix)) from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits; brackets by the thousand
        raise ConfigError(Fault(where=where, rule=f"not valid JSON: {_reason(error)}", fix=fix)) from error
    level, depth = [content], -1
    while level:
        depth += 1
        if depth > MOST_DEPTH:
            raise ConfigError(Fault(where=where, rule=f"values are nested at most {MOST_DEPTH} deep", fix="Write less, or split the file"))
        inside = [value.values() if isinstance(value, dict) else value for value in level if isinstance(value, (dict, list))]
        level = [part for parts in inside for part in parts]
    return content


def read_text(path: Path) -> str:
    """The text of a file, unpacked where its name ends in `.gz`.

    Raises:
        ConfigError: it cannot be read, is not UTF-8, or is larger than `MOST_BYTES`.
    """
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
        text = raw[:MOST_BYTES].decode("utf-8") if len(raw) <= MOST_BYTES else None
    except (OSError, EOFError, zlib.error, ValueError) as error:
        reason = "is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else getattr(error, "strerror", None) or str(error)
        raise ConfigError(Fault(where=str(path), rule=f"cannot be read: {reason}", fix="Check the path")) from error
    if text is None:
        raise ConfigError(Fault(where=str(path), rule=f"a document has at most {MOST_BYTES // 2**20} MiB", fix="Give a smaller file"))
    return text


def read_rows(path: Path) -> list[dict[str, str | None]]:
    """The rows of a CSV file with a header; a cell that is not there is None.

    Raises:
        ConfigError: the file cannot be read, or is not CSV.
    """
    reader = csv.DictReader(io.StringIO(read_text(path).removeprefix("\ufeff"), newline=""))
    try:
        return [{name: cell for name, cell in row.items() if name is not None} for row in reader]
    except csv.Error as error:
        raise ConfigError(
            Fault(where=f"{path}:{reader.line_num}", rule=f"not valid CSV: {error}", fix="Check quotes and commas")
        ) from error


def from_plain(value: Any, where: str) -> Item:
    """A document from values that were parsed already; lines are not known then.

    Raises:
        ConfigError: a value is of a kind that YAML does not have.
    """
    try:
        node = yaml.SafeDumper(io.StringIO()).represent_data(value)
    except (yaml.YAMLError, TypeError, RecursionError) as error:
        raise ConfigError(Fault(where=where, rule=f"holds something that YAML cannot: {_reason(error)}")) from error
    return _bounded(Item(node, where))
