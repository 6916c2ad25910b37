"""Reading runs nothing: while a study is only read, no program that its folder names is started. Who looks at a result folder of
somebody else need not trust it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_reading: ContextVar[bool] = ContextVar("_reading", default=False)


@contextmanager
def only_reading() -> Iterator[None]:
    """Inside, whoever would ask a program what it is does without, or takes what was kept of an earlier answer."""
    token = _reading.set(True)
    try:
        yield
    finally:
        _reading.reset(token)


def is_reading() -> bool:
    """Whether nothing may be started."""
    return _reading.get()


__all__ = ["is_reading", "only_reading"]
