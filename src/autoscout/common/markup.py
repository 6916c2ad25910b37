"""HTML and SVG out of untrusted text: everything that engines, logs, configs and people write is escaped here, and loses its secrets."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable
from typing import Any

from autoscout.core.secrecy import hide_secrets, without_secrets

_TERMINAL_CODES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


class Markup(str):
    """Text that is HTML already; everything else is escaped when it meets it."""

    __slots__ = ()


def clean(text: str) -> str:
    """Text without terminal codes, control characters and characters that turn the direction of what follows."""
    return _CONTROL.sub("�", _TERMINAL_CODES.sub("", text))


def escape(value: object) -> Markup:
    """Any value as HTML; markup stays as it is."""
    if isinstance(value, Markup):
        return value
    return Markup(html.escape(hide_secrets(clean(str(value))), quote=True))


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """An element. Attributes whose value is None are left out; `class_` is written `class`, `_` is written `-`."""
    parts = [name]
    for key, value in attributes.items():
        if value is not None and value is not False:
            label = key.rstrip("_").replace("_", "-")
            parts.append(label if value is True else f'{label}="{escape(value)}"')
    head = " ".join(parts)
    if name in ("br", "input", "link", "meta"):
        return Markup(f"<{head}>")
    return Markup(f"<{head}>{join(children)}</{name}>")


def join(parts: Iterable[object]) -> Markup:
    """Parts one after another, each escaped."""
    return Markup("".join(escape(part) for part in parts))


def table(head: Iterable[object], rows: Iterable[Iterable[object]], caption: str, **attributes: object) -> Markup:
    """A table whose cells may be markup; a cell that is a `<td>` or `<th>` already stays one."""
    header = tag("tr", *(cell if _is_cell(cell) else tag("th", cell, scope="col") for cell in head))
    body = [tag("tr", *(cell if _is_cell(cell) else tag("td", cell) for cell in row)) for row in rows]
    inner = tag("table", tag("caption", caption, class_="quiet"), tag("thead", header), tag("tbody", *body), **attributes)
    return tag("div", inner, class_="scroll", tabindex="0", role="region", aria_label=caption)


def _is_cell(cell: object) -> bool:
    return isinstance(cell, Markup) and cell.startswith(("<td", "<th"))


def number_cell(text: object, **attributes: object) -> Markup:
    """A right-aligned cell."""
    return tag("td", text, class_="number", **attributes)


def badge(text: object, kind: str) -> Markup:
    """A small label; its word says what its colour says."""
    return tag("span", text, class_=f"badge {kind}")


def embedded_json(data: Any) -> Markup:
    """JSON for a script element, which no string in it can end."""
    text = json.dumps(without_secrets(data), separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))
