"""The space of a campaign from a file: a space of ours, one that another tool wrote, or candidates in the system's own form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from autoscout.common.document import Item, load, load_json
from autoscout.core import plugins
from autoscout.core.errors import ConfigError, Fault, PluginError
from autoscout.space import write_space
from autoscout.space.interchange.optuna import is_optuna, optuna_space

OURS = ("space", "search_space", "knobs", "among")
"""Keys that only spaces of ours have."""


@dataclass(frozen=True)
class SpaceFile:
    """What a file says.

    Attributes:
        block: The `space` block of a campaign; none where the file goes into the workload.
        workload: Fields of the workload.
        item: The block where it stands in its file, for messages.
    """

    block: dict[str, Any] | None = None
    workload: Mapping[str, Any] | None = None
    item: Item | None = None


def read_space_file(path: Path, system: str) -> SpaceFile:
    """The space in a file, for a system.

    Raises:
        ConfigError, SpaceError: it cannot be read; all faults at once.
    """
    if path.suffix == ".json":
        content = load_json(path)
        own = isinstance(content, Mapping) and bool(content.keys() & set(OURS))
        if not own and isinstance(content, Mapping) and (field := _field(system)):
            return SpaceFile(workload={field: str(path.expanduser().absolute())})
        if not own:
            return SpaceFile(block=yaml.safe_load(write_space(_foreign(path, content))))
    if is_optuna(path):
        return SpaceFile(block=yaml.safe_load(write_space(optuna_space(path))))
    faults: list[Fault] = []
    item = load(path)
    entries = item.entries(faults)
    inner = next((entries[name] for name in OURS[:2] if name in entries and "knobs" not in entries), item)
    inner.entries(faults)
    if faults:
        raise ConfigError(faults)
    return SpaceFile(block=dict(inner.value), item=inner)


def _field(system: str) -> str:
    """The field of the workload that takes such files; empty where the system has no form of its own, or is unknown."""
    try:
        return str(plugins.get("backend", system).space_file)
    except PluginError:
        return ""


def _foreign(path: Path, content: Any) -> Any:
    from autoscout.space.interchange import read_foreign  # rarely needed, and slow to import

    space = read_foreign(path, content)
    if space is None:
        rule, fix = "is no space: it has neither knobs nor candidates", "See the guide Declare a space"
        raise ConfigError(Fault(where=str(path), rule=rule, fix=fix))
    return space


__all__ = ["SpaceFile", "read_space_file"]
