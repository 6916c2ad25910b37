"""The one "did you mean" of all messages; apart from `fields`, so that a space is built without loading pydantic."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LONGEST = 100  # characters of a name that are compared: the time grows with the square


def nearest(name: str, known: Iterable[str], most: int = 3, cutoff: float = 0.6) -> list[str]:
    """The known names most like `name`, best first; `cutoff` is the least similarity, 0 to 1. Case does not matter."""
    folded = {other.lower(): other for other in known}
    return [folded[match] for match in difflib.get_close_matches(name.lower()[:_LONGEST], list(folded), n=most, cutoff=cutoff)]


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
