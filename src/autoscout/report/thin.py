"""Which of many points to draw: more than a screen has room for hide each other and slow a browser down."""

from __future__ import annotations

from collections.abc import Iterable


def thin(count: int, most: int, keep: Iterable[int] = ()) -> list[int]:
    """Indices to draw, in order: all, or an even choice of `most` together with those to `keep`."""
    if count <= most:
        return list(range(count))
    step = count / most
    return sorted({int(step * place) for place in range(most)} | set(keep))
