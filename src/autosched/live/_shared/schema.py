"""Checks an object against the part of a published schema that AutoScout may change."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from autoscout.core.errors import Fault

QUANTITY = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?")
"""Amounts of Kubernetes: `8`, `500m`, `16Gi`."""

_TYPES: Mapping[str, Any] = {"string": str, "integer": int, "boolean": bool, "object": dict, "array": list}


def broken_rules(value: Any, schema: Mapping[str, Any], where: str, field: str = "") -> list[Fault]:
    """All rules of a schema that a value breaks.

    A schema is `type` (or `quantity`), `enum`, `minimum`, `most` (items), `fields`, `open` (whether others are allowed), `needs`, `items`.
    """

    def fault(rule: str) -> list[Fault]:
        return [Fault(where=where, field=field, value=repr(value)[:80], rule=rule)]

    kind = schema.get("type", "object")
    if kind == "quantity":
        good = QUANTITY.fullmatch(str(value)) and not isinstance(value, bool)
        return [] if good and not str(value).startswith("-") else fault("must be an amount that is not negative, such as 8 or 500m")
    if not isinstance(value, _TYPES[kind]) or (kind == "integer" and isinstance(value, bool)):
        return fault(f"must be of type {kind}")
    if "enum" in schema and value not in schema["enum"]:
        return fault(f"must be one of {', '.join(schema['enum'])}")
    if "minimum" in schema and value < schema["minimum"]:
        return fault(f"must be at least {schema['minimum']}")
    faults: list[Fault] = []
    if kind == "object":
        fields = schema.get("fields", {})
        for name in schema.get("needs", ()):
            faults += [] if name in value else [Fault(where=where, field=f"{field}.{name}".strip("."), rule="is required")]
        for name, inner in value.items():
            path = f"{field}.{name}".strip(".")
            if name in fields:
                faults += broken_rules(inner, fields[name], where, path)
            elif not schema.get("open", True):
                faults.append(Fault(where=where, field=path, rule="the schema has no such field"))
    if kind == "array":
        if len(value) > schema.get("most", len(value)):
            faults += fault(f"must have at most {schema['most']} items")
        for number, inner in enumerate(value):
            faults += broken_rules(inner, schema.get("items", {"type": "object"}), where, f"{field}[{number}]")
    return faults
