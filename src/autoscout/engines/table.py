"""The flags of one version of an engine, and what people know about them.

`tables/VERSION.yaml` of an engine's package is written by `scripts/knob_tables.py` from the engine itself; `knobs.yaml` is written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from autoscout.core.config import Value
from autoscout.core.log import logger

ASKED = "asked"
"""Condition of a value that is offered only where somebody names it."""
SEARCHED = 0.2
"""Knobs that matter at least this much are searched by default; the others stay as the engine has them unless they are freed."""

log = logger(__name__)


@dataclass(frozen=True, kw_only=True)
class FlagRow:
    """One flag of the engine.

    Attributes:
        name: The engine's own name of the setting.
        flag: How the command line writes it.
        type: `int`, `float`, `str`, `choice`, `list`, `json`; `bool` has a `--no-` form, `switch` has none.
        default: The engine's own; None where it computes it.
        choices: What it may be, where the engine lists that. A `str` with choices may be more: people register kinds of their own.
        keys: The settings inside its JSON value, those of inner settings behind a dot, where the engine lists them.
        aliases: Its other spellings on the command line, such as `-tp`.
        of: The classes that have it as a field, for an engine that is configured by classes.
    """

    name: str
    flag: str
    type: str
    default: Any = None
    choices: tuple[Any, ...] = ()
    keys: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    of: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class KnobRow:
    """One knob, as `knobs.yaml` has it; the comments there say what the fields mean.

    Attributes:
        optional: The value null stands for: left out, so that the engine decides.
    """

    name: str
    flag: str = ""
    grid: tuple[float, ...] = ()
    values: tuple[Value, ...] = ()
    default: Value = None
    left_out: Value = None
    always: bool = False
    most: str = ""
    log: bool = False
    unit: str = ""
    needs: str = ""
    when: str = ""
    matters: float = 0.0
    lossy: bool = False
    leads: bool = False
    speculates: bool = False
    usual: str = ""
    only: Mapping[Value, str] = field(default_factory=dict)
    trades: str = ""
    env: str = ""
    optional: bool = False

    @property
    def setting(self) -> str:
        """The entry of the table whose flag carries it; empty for a variable."""
        return "" if self.env else (self.flag or self.name).partition(".")[0]

    @property
    def key(self) -> str:
        """The key inside the JSON value of that flag, with a dot before a key of an inner value; empty for a flag of its own."""
        return self.flag.partition(".")[2]

    def is_in(self, flags: Mapping[str, FlagRow]) -> bool:
        """Whether these flags have it. Variables are in no table: an engine that does not know one ignores it."""
        if self.env:
            return True
        row = flags.get(self.setting)
        return row is not None and (not self.key or not row.keys or self.key in row.keys)


@dataclass(frozen=True, kw_only=True)
class EngineTable:
    """Flags, knobs and the rules between them, for one version."""

    engine: str
    version: str
    flags: Mapping[str, FlagRow]
    knobs: Mapping[str, KnobRow] = field(default_factory=dict)
    constraints: tuple[tuple[str, str], ...] = ()  # rule, why
    renamed: Mapping[str, str] = field(default_factory=dict)  # flags of other versions -> what took their place
    soft: frozenset[str] = frozenset()  # rules that keep useless configurations from the search, and that the engine does not have
    lossy: frozenset[str] = frozenset()  # flags and variables that change the answers without being knobs

    def is_lossy(self, name: str) -> bool:
        """Whether a knob, a flag (`name`, or `name.key` inside its value) or a variable changes what the model answers."""
        row = self.knobs.get(name)
        return row.lossy if row else bool({name, name.partition(".")[0]} & self.lossy)

    def with_knobs(self, rows: Iterable[KnobRow]) -> EngineTable:
        """This table with further knobs, or with others of the same name or place."""
        added = {row.name: row for row in rows}
        places = {(row.env, row.setting, row.key) for row in added.values()}
        others = {name: row for name, row in self.knobs.items() if name in added or (row.env, row.setting, row.key) not in places}
        return replace(self, knobs={**others, **added})

    def without_rules(self, rules: Collection[str]) -> EngineTable:
        """This table without some of its rules."""
        return replace(self, constraints=tuple(entry for entry in self.constraints if entry[0] not in rules))

    def without(self, missing: frozenset[str]) -> EngineTable:
        """This table less settings that the engine at hand does not know, and the knobs that need them."""
        flags = {name: row for name, row in self.flags.items() if name not in missing}
        return replace(self, flags=flags, knobs={name: row for name, row in self.knobs.items() if row.is_in(flags)})


def plain(name: str) -> str:
    """The name of a setting as the table has it, for one written like a flag; after a dot a key of its JSON value."""
    head, dot, key = name.removeprefix("--").partition(".")
    return head.replace("-", "_") + dot + key


def versions(engine: str) -> tuple[str, ...]:
    """The versions there are tables of, oldest first."""
    folder = files(f"autoscout.backends.{engine}").joinpath("tables")
    return tuple(sorted((item.name.removesuffix(".yaml") for item in folder.iterdir() if item.name.endswith(".yaml")), key=numbers))


def numbers(version: str) -> tuple[int, ...]:
    """A version as numbers that compare.

    >>> numbers("0.9.2+cpu") < numbers("0.10.0")
    True
    """
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+")[0])[:3])


def nearest(engine: str, version: str) -> str:
    """The newest table that is not newer than `version`, else the oldest; the newest of all for an unknown one."""
    available = versions(engine)
    if not numbers(version):
        return available[-1]
    older = [name for name in available if numbers(name) <= numbers(version)]
    return older[-1] if older else available[0]


@cache
def table(engine: str, version: str) -> EngineTable:
    """The table of exactly that version; see `nearest` for others."""
    home = files(f"autoscout.backends.{engine}")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the tables are long; the C loader is ten times faster
    data = yaml.load(home.joinpath("tables", f"{version}.yaml").read_text(encoding="utf-8"), Loader=loader)
    knowledge = yaml.load(home.joinpath("knobs.yaml").read_text(encoding="utf-8"), Loader=loader)
    flags = {name: FlagRow(name=name, **_frozen(row)) for name, row in data["flags"].items()}
    rows = [KnobRow(name=name, **_frozen(row)) for name, row in knowledge["knobs"].items()]
    knobs = {row.name: row if row.env else _offered(row, flags[row.setting]) for row in rows if row.is_in(flags)}
    rules = tuple((entry["rule"], entry["why"]) for entry in knowledge["constraints"])
    soft = frozenset(entry["rule"] for entry in knowledge["constraints"] if entry.get("soft"))
    lossy = frozenset(knowledge.get("lossy", ()))
    renamed = {old: str(new) for old, new in knowledge.get("renamed", {}).items() if plain(old) not in flags}
    return EngineTable(
        engine=engine, version=str(data["version"]), flags=flags, knobs=knobs, constraints=rules, lossy=lossy, renamed=renamed, soft=soft
    )


def _offered(row: KnobRow, flag: FlagRow) -> KnobRow:
    """The knob with the values that this version of the engine knows."""
    if row.key or flag.type != "choice" or not row.values:
        return row
    return replace(row, values=tuple(value for value in row.values if value == row.left_out or value in flag.choices))


def _frozen(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}


def table_for(engine: str, version: str, missing: frozenset[str] = frozenset()) -> EngineTable:
    """The table to use for a version, less what the engine at hand does not know."""
    return table(engine, nearest(engine, version)).without(missing)


__all__ = ["ASKED", "SEARCHED", "EngineTable", "FlagRow", "KnobRow", "nearest", "numbers", "plain", "table", "table_for", "versions"]
