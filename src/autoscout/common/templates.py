"""Trees with holes: configuration files as nested mappings whose `$knob` strings take values from a configuration.

    fill({"zero": {"stage": "$zero_stage"}, "path": "/data/$run"}, {"zero_stage": 2, "run": "a"})
    -> {"zero": {"stage": 2}, "path": "/data/a"}

A string that is one `$name` takes the value with its type; inside a longer string the value is written as text. `${name}` works
where letters follow, and for dotted names; `$$` is a dollar sign. Names are matched exactly, else without regard to case, since
DeepSpeed's templates write them in capitals.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from autoscout.core.config import Value

_HOLE = re.compile(r"\$(?:(?P<dollar>\$)|(?P<name>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_][\w.\-]*)\})")
_GONE = object()


def holes(tree: Any) -> set[str]:
    """All names that `tree` mentions, as written."""
    if isinstance(tree, str):
        return {name for match in _HOLE.finditer(tree) if (name := match["name"] or match["braced"])}
    if isinstance(tree, Mapping):
        return {name for key, value in tree.items() for name in holes(value) | holes(str(key))}
    if isinstance(tree, Sequence):
        return {name for value in tree for name in holes(value)}
    return set()


def resolve(name: str, names: Iterable[str]) -> str | None:
    """The known name that `name` means: itself, or the only one that differs in case alone."""
    names = set(names)
    if name in names:
        return name
    alike = [other for other in names if other.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None


def fill(tree: Any, values: Mapping[str, Value]) -> Any:
    """A copy of `tree` with its holes filled.

    An entry whose hole has no value (its knob is inactive) is left out, and so is every section that this leaves empty: an
    engine must not see half a section.
    """
    filled = _fill(tree, values)
    return type(tree)() if filled is _GONE and isinstance(tree, (dict, list)) else (None if filled is _GONE else filled)


def prune(tree: Mapping[str, Any], keep: Iterable[str] = ()) -> dict[str, Any]:
    """The sections of a template that some knob touches, and the plain values next to them.

    Two configurations that differ only in sections nobody varies are one experiment, and a section without a hole cannot tell
    two experiments apart.

    Args:
        tree: A template, not yet filled.
        keep: Dotted paths to keep although no hole is below them (what rules need to see).
    """
    return {key: value for key, value in tree.items() if not isinstance(value, (Mapping, list)) or holes(value) or key in _heads(keep)}


def flatten(tree: Any, path: str = "") -> dict[str, Any]:
    """The leaves of a nested mapping by dotted path; lists are leaves, an empty section is a leaf of its own."""
    if not isinstance(tree, Mapping) or not tree:
        return {path: tree} if path else {}
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        leaves.update(flatten(value, f"{path}.{key}" if path else str(key)))
    return leaves


def unflatten(values: Mapping[str, Any]) -> dict[str, Any]:
    """The nested mapping behind dotted names; where a name is both a value and a section the section wins."""
    tree: dict[str, Any] = {}
    for name in sorted(values, key=lambda name: name.count(".")):
        node = tree
        *parents, leaf = name.split(".")
        for parent in parents:
            inner = node.get(parent)
            if not isinstance(inner, dict):
                inner = node[parent] = {}
            node = inner
        node[leaf] = values[name]
    return tree


def canonical(tree: Any) -> str:
    """Sorted compact JSON: equal exactly for trees that say the same."""
    return json.dumps(tree, sort_keys=True, separators=(",", ":"))


def _heads(paths: Iterable[str]) -> set[str]:
    return {path.split(".", 1)[0] for path in paths}


def _fill(tree: Any, values: Mapping[str, Value]) -> Any:
    if isinstance(tree, str):
        return _fill_text(tree, values)
    if isinstance(tree, Mapping):
        pairs = [(_fill_text(str(key), values), _fill(value, values)) for key, value in tree.items()]
        entries = {str(key): value for key, value in pairs if key is not _GONE and value is not _GONE}
        return _GONE if tree and not entries else entries
    if isinstance(tree, Sequence):
        items = [item for item in (_fill(item, values) for item in tree) if item is not _GONE]
        return _GONE if tree and not items else items
    return tree


def _fill_text(text: str, values: Mapping[str, Value]) -> Any:
    whole = _HOLE.fullmatch(text)
    if whole and not whole["dollar"]:
        name = resolve(whole["name"] or whole["braced"], values)
        return _GONE if name is None else values[name]
    if any(resolve(name, values) is None for name in holes(text)):
        return _GONE
    return _HOLE.sub(lambda match: _replacement(match, values), text)


def _replacement(match: re.Match[str], values: Mapping[str, Value]) -> str:
    if match["dollar"]:
        return "$"
    return as_text(values[resolve(match["name"] or match["braced"], values) or ""])


def lay_over(base: Any, top: Any) -> Any:
    """`top` over `base`: mappings are merged, anything else is replaced."""
    if not (isinstance(base, Mapping) and isinstance(top, Mapping)):
        return top
    return {**base, **{name: lay_over(base.get(name), value) for name, value in top.items()}}


def as_text(value: Value) -> str:
    """A value as configuration files and command lines write it: `true`, `null`, `0.5`, strings bare."""
    return value if isinstance(value, str) else json.dumps(value)


__all__ = ["as_text", "canonical", "fill", "flatten", "holes", "lay_over", "prune", "resolve", "unflatten"]
