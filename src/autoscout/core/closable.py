"""What must be let go of at its end: a context manager with `close`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closable(ABC):
    """A context manager that is closed at its end."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything; may be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


__all__ = ["Closable"]
