"""Text for people: values, numbers, durations and advice.

Loads no pydantic, so that building a space does not.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence

ABSENT = "-"
"""Shown for what is not there: a knob that a condition makes inactive, a metric that was not reported."""

NOT_GIVEN = "not given"
"""Shown for the value null: the setting is left out, so that the system does what it does by itself."""

_COMPARED = 100  # characters of a name that are compared: the time grows with the square


def show(value: object) -> str:
    """A knob's value as a person would type it, on one line: control characters are written as `\\n` or `\\x1b`."""
    if value.__class__ is int:
        return str(value)
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None:
        return NOT_GIVEN
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, str) and value.isprintable():
        return value
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in str(value))


def plural(number: int, what: str) -> str:
    """`1 job`, `2,000 jobs`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def enumeration(words: Sequence[str]) -> str:
    """Words as a sentence lists them.

    >>> enumeration(["default", "baseline", "best"])
    'default, baseline and best'
    """
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def show_number(value: float | None) -> str:
    """A metric with four significant digits: enough to compare, few enough to read."""
    if value is None:
        return ABSENT
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    size = abs(value)
    if size >= 1e7 or size < 1e-3:
        return f"{value:.3e}"
    decimals = max(0, 3 - math.floor(math.log10(size)))
    return f"{value:,.{decimals}f}"


def show_percent(ratio: float | None) -> str:
    """A gain ratio as a signed percentage: 1.25 is +25.0 %."""
    return ABSENT if ratio is None else f"{(ratio - 1.0) * 100.0:+.1f} %"


def show_gain(ratio: float | None, *ends: float | None) -> str:
    """A gain as people say it: `+25.0 %` below twice as good, `2.25x` from there; with its interval when ends are given."""
    say = show_percent if ratio is None or ratio < 1.995 else _times
    text = say(ratio)
    return text if None in ends or not ends else f"{text} ({' to '.join(say(end) for end in ends)})"


def _times(ratio: float | None) -> str:
    return ABSENT if ratio is None else f"{ratio:.2f}x"


def show_duration(duration_s: float | None) -> str:
    """Seconds as `850 ms`, `42 s`, `3 m 20 s`, `2 h 05 m` or `3 d 4 h`."""
    if duration_s is None or not math.isfinite(duration_s):
        return ABSENT
    if duration_s < 1:
        return f"{duration_s * 1000:.0f} ms"
    if duration_s < 10:
        return f"{duration_s:.1f} s"
    seconds = round(duration_s)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} m {seconds % 60:02d} s"
    if seconds < 86400:
        return f"{seconds // 3600} h {seconds % 3600 // 60:02d} m"
    return f"{seconds // 86400} d {seconds % 86400 // 3600} h"


def nearest(name: str, known: Iterable[str], most: int = 3, cutoff: float = 0.6) -> list[str]:
    """The known names most like `name`, best first; `cutoff` is the least similarity, 0 to 1. Case does not matter."""
    folded = {other.lower(): other for other in known}
    return [folded[match] for match in difflib.get_close_matches(name.lower()[:_COMPARED], list(folded), n=most, cutoff=cutoff)]


def suggestion(name: str, known: Iterable[str], listed: int = 30) -> str:
    """Advice for an unknown name: what was probably meant, else the names there are, at most `listed`.

    >>> suggestion("bach", ["batch", "fast"])
    "Did you mean 'batch'?"
    """
    names = list(known)
    if matches := nearest(name, names):
        return f"Did you mean {' or '.join(repr(match) for match in matches)}?"
    more = f" and {len(names) - listed} more" if len(names) > listed else ""
    return f"There are: {', '.join(sorted(names)[:listed]) or 'none'}{more}"
