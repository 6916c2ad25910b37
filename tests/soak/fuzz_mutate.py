"""Broken input from good input: trees with one strange value, lines with a strange cell, files with damaged bytes."""

from __future__ import annotations

import json
import random
from typing import Any

import yaml


class Raw(str):
    """Text that goes into the document as it is: tags, anchors, things that no value is written as."""


class Pairs(list[tuple[Any, Any]]):
    """A mapping whose keys may occur twice, or be of any kind."""


LAUGHS = (
    "[" + ", ".join([f"&l0 [{', '.join(['x'] * 9)}]"] + [f"&l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 12)]) + "]"
)  # a billion laughs: nine to the twelfth
NUMBERS: list[Any] = [0, -1, 1, 2, 7, 99999999999, 88888888, 2**31, 2**53 + 1, 2**63, 10**30, -(10**30), 10**400]
NUMBERS += [0.5, -0.0, 1e308, 5e-324, 1.0000001, float("nan"), float("inf"), float("-inf")]
TEXTS = ["", " ", "\x00", "\x1b[31m", "\ud800", "\u2028", "²", "٣", "ä" * 300, "a" * 100_000, "9" * 5000, "9" * 400 + ".0"]
TEXTS += ["[" * 2000, "(" * 2000, "a and " * 3000 + "a", "-" * 3000 + "1", "not " * 3000 + "x", "x ** 9 ** 9 ** 9", "x in (", "x == 'a"]
TEXTS += [
    "x",
    "null",
    "true",
    "on",
    "1e999",
    "0x10",
    "1_000",
    "nan",
    "inf",
    "-",
    "=1+1",
    "@x",
    "..",
    "/",
    "a/b",
    "{x}",
    "{x:999999999}",
    "{x:.999999999f}",
    "{x:flag=",
    "[{x}]",
    "{{x}}",
]
TEXTS += [
    "${folder}",
    "$x",
    "${a.b}",
    "2**99999999",
    "1/0",
    "`x`",
    "synthetic:venus:99999999999",
    "70x8",
    "99999999999x99999999999",
    "8xA100-80",
]
TEXTS += [
    "p95<=1e999",
    "2017-09-22",
    "9999-99-99",
    "0001-01-01T00:00:00+23:59",
    "1h30m",
    "10d10d",
    "a=b",
    "a.b.c=1",
    "--set",
    "!!python/object:os.system",
]
TEXTS += ["a,b", "'", '"']
RAW = ["!!bool x", "!!timestamp x", "!!int x", "!!float x", "!!binary x", "!!set {a, b}", "!!omap [a]", "!!pairs [a]", "!own x", LAUGHS]
RAW += ["&s [*s]", "&m {a: *m}", "{<<: 1}", "{<<: [1]}", "{<<: {a: 1}, a: 2}", "{? [a] : b}", "{1: a, b: c}", "*nowhere", "? a"]
RAW += ["2001-01-01", ".inf", ".nan", "1e400", "0o17"]


def strange(rng: random.Random, raw: bool) -> Any:
    """A value that hardly anybody expects."""
    kind = rng.randrange(8 if raw else 7)
    if kind in (0, 1):
        return rng.choice(NUMBERS)
    if kind in (2, 3):
        return rng.choice(TEXTS)
    if kind == 4:
        return rng.choice([None, True, False, [], {}, [[]], {"": 1}, [None], {"a": {"b": []}}, [1, "a", None], {"x": [1, 2]}])
    if kind == 5:
        value: Any = rng.choice([1, "x", None])
        for _ in range(rng.choice([2, 50, 150, 600, 3000])):
            value = [value] if rng.random() < 0.5 else {"a": value}
        return value
    if kind == 6:
        return [rng.choice(NUMBERS[:12]) for _ in range(rng.choice([1, 3, 500]))]
    return Raw(rng.choice(RAW))


def change_tree(rng: random.Random, tree: Any, raw: bool) -> Any:
    """A copy with one place changed: another value, one more, one less, a key twice, two places swapped."""
    places = list(_places(tree))
    path = rng.choice(places)
    other = rng.choice(places)
    action = rng.randrange(8)

    def change(value: Any) -> Any:
        if action <= 3:
            return strange(rng, raw)
        if action == 4:
            return _get(tree, other)
        if isinstance(value, dict) and value:
            pairs = Pairs(value.items())
            spot = rng.randrange(len(pairs))
            if action == 5:
                del pairs[spot]
            elif action == 6:
                pairs.append((pairs[spot][0], strange(rng, raw)))
            else:
                key = strange(rng, raw)
                pairs[spot] = (key, pairs[spot][1])
            return pairs
        if isinstance(value, list) and value:
            spot = rng.randrange(len(value))
            return value[:spot] + ([] if action == 5 else [value[spot], strange(rng, raw)]) + value[spot + 1 :]
        return strange(rng, raw)

    return _with(tree, path, change)


def _places(tree: Any, path: tuple[Any, ...] = ()) -> Any:
    yield path
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) and not isinstance(tree, Pairs) else ()
    for key, value in items:
        yield from _places(value, (*path, key))


def _get(tree: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def _with(tree: Any, path: tuple[Any, ...], change: Any) -> Any:
    if not path:
        return change(tree)
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    copy[path[0]] = _with(tree[path[0]], path[1:], change)
    return copy


def written(value: Any, raw: bool) -> str:
    """The tree as JSON, or as YAML in brackets."""
    parts: list[str] = []
    waiting: list[Any] = [value]
    while waiting:  # no recursion: values are nested by the thousand
        item = waiting.pop()
        if isinstance(item, _Text):
            parts.append(item)
        elif isinstance(item, Raw):
            parts.append(item if raw else json.dumps(item))
        elif isinstance(item, (dict, Pairs)):
            pieces: list[Any] = [_Text("{")]
            for number, (key, inner) in enumerate(item.items() if isinstance(item, dict) else item):
                named = key if isinstance(key, str) or (raw and not isinstance(key, (list, dict))) else written(key, raw=False)
                pieces += [_Text(", " if number else ""), named, _Text(": "), inner]
            waiting.extend(reversed([*pieces, _Text("}")]))
        elif isinstance(item, (list, tuple)):
            pieces = [_Text("[")]
            for number, inner in enumerate(item):
                pieces += [_Text(", " if number else ""), inner]
            waiting.extend(reversed([*pieces, _Text("]")]))
        elif raw and isinstance(item, float):
            parts.append({"nan": ".nan", "inf": ".inf", "-inf": "-.inf"}.get(str(item), repr(item)))
        elif isinstance(item, int) and abs(item) > 10**300:
            parts.append("1" + "0" * 400)
        else:
            parts.append(json.dumps(item))
    return "".join(parts)


class _Text(str):
    """A piece of syntax."""


def change_lines(rng: random.Random, text: str, separators: str) -> str:
    """One cell, line or separator changed."""
    lines = text.split("\n")
    for _ in range(rng.choice([1, 1, 2, 5])):
        spot = rng.randrange(len(lines))
        action = rng.randrange(6)
        if action <= 2:
            separator = rng.choice(separators)
            cells = lines[spot].split(separator)
            found = strange(rng, raw=False)
            cells[rng.randrange(len(cells))] = found if isinstance(found, str) else written(found, raw=False)[:2000]
            lines[spot] = separator.join(cells)
        elif action == 3:
            lines.insert(spot, lines[rng.randrange(len(lines))])
        elif action == 4 and len(lines) > 1:
            del lines[spot]
        else:
            lines[spot] += rng.choice(separators) + rng.choice(TEXTS)
    return "\n".join(lines)


def change_bytes(rng: random.Random, data: bytes) -> bytes:
    """Some bytes changed, taken out, doubled or put in."""
    found = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 4, 16])):
        spot = rng.randrange(len(found) + 1)
        action = rng.randrange(6)
        if action == 0 and found:
            found[spot % len(found)] = rng.randrange(256)
        elif action == 1 and found:
            found[spot % len(found)] ^= 1 << rng.randrange(8)
        elif action == 2:
            del found[spot : spot + rng.choice([1, 4, 50])]
        elif action == 3:
            found[spot:spot] = found[spot : spot + rng.choice([1, 8, 100])]
        elif action == 4:
            found[spot:spot] = rng.choice(TEXTS).encode("utf-8", "surrogatepass")[:5000]
        else:
            del found[spot:]
    return bytes(found)


def mutate(rng: random.Random, seed: bytes, form: str) -> bytes:
    """One broken input.

    Args:
        rng: Where chance comes from: the same state gives the same input.
        seed: A good input.
        form: `yaml`, `json`, `jsonl`, `bytes`, or the separators of cells in its lines.
    """
    if form == "bytes" or rng.random() < 0.2:
        return change_bytes(rng, seed)
    if form in ("yaml", "json"):
        tree = yaml.safe_load(seed) if form == "yaml" else json.loads(seed)
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            try:
                tree = change_tree(rng, tree, form == "yaml")
            except (TypeError, KeyError, IndexError, RecursionError):  # a place inside what the change before has made strange
                break
        return written(tree, form == "yaml").encode("utf-8", "surrogatepass")
    if form == "jsonl":
        lines = seed.decode().splitlines()
        spot = rng.randrange(len(lines))
        lines[spot] = written(change_tree(rng, json.loads(lines[spot]), False), False)
        return ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass")
    return change_lines(rng, seed.decode(), form).encode("utf-8", "surrogatepass")
