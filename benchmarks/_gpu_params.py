"""How the files of `benchmarks.record_gpu` write down a setting of a table."""

from __future__ import annotations

from typing import Any

Params = list[dict[str, Any]]


def ordinal(name: str, values: list[int], role: str = "dense", when: dict[str, list[Any]] | None = None) -> dict[str, Any]:
    return {"name": name, "kind": "ordinal", "role": role, "values": values} | ({"when": when} if when else {})


def choice(name: str, values: list[str], when: dict[str, list[Any]] | None = None) -> dict[str, Any]:
    return {"name": name, "kind": "categorical", "role": "sparse", "values": values} | ({"when": when} if when else {})
