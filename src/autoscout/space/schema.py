"""JSON Schema of the space block, for editors that complete and check YAML."""

from __future__ import annotations

from typing import Any

_SCALAR = {"type": ["string", "number", "boolean", "null"]}
_NUMBER = {"anyOf": [{"type": "number"}, {"type": "string", "description": "expression over facts that comes to a number"}]}


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a `space` block or of a file that holds one."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "AutoScout space",
        "description": "What may be chosen: knobs, conditions, constraints.",
        "type": "object",
        "additionalProperties": False,
        "required": ["knobs"],
        "properties": {
            "facts": {
                "description": "Constants of the task that conditions, constraints and ranges may read.",
                "type": "object",
                "additionalProperties": {"type": ["string", "number", "boolean"]},
            },
            "knobs": {
                "description": "One entry per knob, in the order they should be shown.",
                "type": "object",
                "minProperties": 1,
                "additionalProperties": {"$ref": "#/$defs/knob"},
            },
            "constraints": {
                "description": "Expressions that every configuration must satisfy.",
                "type": "array",
                "items": {"$ref": "#/$defs/constraint"},
            },
            "among": {
                "description": "The valid configurations one by one, where there is no rule for them; all others are refused.",
                "type": "array",
                "minItems": 1,
                "items": {"type": "object", "additionalProperties": _SCALAR},
            },
        },
        "$defs": {
            "knob": {
                "oneOf": [
                    {"description": "Short for {values: [...]}.", "type": "array", "items": _SCALAR, "minItems": 1},
                    {"description": "Short for {type: bool}.", "const": "bool"},
                    _flag(),
                    _listed(),
                    _range(),
                ]
            },
            "constraint": {
                "oneOf": [
                    {"type": ["string", "boolean"], "description": "A boolean expression over knobs and facts."},
                    {
                        "type": "object",
                        "additionalProperties": False,
                        "required": ["rule"],
                        "properties": {
                            "rule": {"type": ["string", "boolean"], "description": "A boolean expression over knobs and facts."},
                            "why": {"type": "string", "description": "Shown when the rule is broken."},
                            "strict": {
                                "type": "boolean",
                                "description": "Broken, instead of not enforced, where a knob it reads is inactive.",
                            },
                        },
                    },
                ]
            },
        },
    }


def _knob(required: list[str], properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": required, "properties": {**properties, **_common()}}


def _common() -> dict[str, Any]:
    return {
        "sparse": {
            "type": "boolean",
            "description": "Part of the structure (searched by tree) or, when false, dense (searched along its order).",
        },
        "when": {"type": ["string", "boolean"], "description": "Condition over other knobs and facts under which the knob exists."},
        "unit": {"type": "string", "description": "Unit of the values, for people."},
        "restart": {"type": "boolean", "description": "Whether a change needs a new process of the system (default true)."},
        "help": {"type": "string", "description": "One line for people."},
        "warning": {
            "type": "string",
            "description": "What is given up with any value but the default, such as durability; said with the gain.",
        },
    }


def _flag() -> dict[str, Any]:
    return _knob(["type"], {"type": {"const": "bool"}, "default": {"type": "boolean"}})


def _listed() -> dict[str, Any]:
    return _knob(
        ["values"],
        {
            "type": {
                "enum": ["choice", "int", "float"],
                "description": "choice: numbers without an order; int, float: kind of the numbers.",
            },
            "values": {"type": "array", "items": _SCALAR, "minItems": 1, "uniqueItems": True},
            "log": {"type": "boolean", "description": "Ratios of the numbers matter, not differences."},
            "default": {**_SCALAR, "description": "What the engine does by itself; one of the values."},
        },
    )


def _range() -> dict[str, Any]:
    return _knob(
        ["range"],
        {
            "type": {"enum": ["int", "float"]},
            "range": {"type": "array", "items": _NUMBER, "minItems": 2, "maxItems": 2, "description": "[low, high], both included."},
            "step": {**_NUMBER, "description": "Distance of the values; 1 for whole numbers."},
            "log": {"type": "boolean", "description": "Values at equal ratios."},
            "base": {**_NUMBER, "description": "Ratio of neighbours on a log scale (default 2)."},
            "points": {"type": "integer", "minimum": 2, "description": "Number of evenly spread values."},
            "default": {**_NUMBER, "description": "What the engine does by itself; joins the values if it is off the grid."},
        },
    )
