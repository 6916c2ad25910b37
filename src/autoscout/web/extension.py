"""What other packages add to the dashboard: pages of their own, a section of the first page, entries that are followed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any, ClassVar, Protocol

from autoscout.common.markup import Markup
from autoscout.core.clock import Clock

GROUP = "autoscout.web"
"""StudyEntry points of this group name subclasses of `Extension`."""


class Followed(Protocol):
    """An entry of the dashboard that changes while it is looked at."""

    key: str
    version: int  # grows with everything that a page may show

    def follow(self) -> None:
        """Read on from where it was, if it is time."""
        ...


class Extension:
    """Pages of another package in the dashboard. Subclasses override what they need; the dashboard makes one each.

    Args:
        target: What the dashboard shows: a folder, a SQLite file or the URL of a store.
        clock: For the pauses between two looks.
    """

    systems: ClassVar[Mapping[str, tuple[str, str]]] = {}
    """System -> id and title of a list of its own for its studies."""

    def __init__(self, target: str, clock: Clock) -> None:
        self.target = target
        self.clock = clock

    def stores(self) -> Sequence[str]:
        """Stores at the target that the dashboard does not know, such as those without studies."""
        return ()

    def is_own(self, store: str) -> bool:  # noqa: ARG002
        """Whether a store holds no studies, only what this package shows."""
        return False

    def look(self, store: str) -> None:
        """Take in what a store holds.

        Raises:
            StoreError: it cannot be read.
        """

    def entries(self) -> Sequence[Followed]:
        """What is followed."""
        return ()

    def section(self) -> Markup:
        """A section of the first page."""
        return Markup("")

    def pages(self) -> Mapping[str, Any]:
        """Routes that return pages: address -> handler of FastAPI."""
        return {}

    def documents(self) -> Mapping[str, Any]:
        """Routes that return JSON."""
        return {}


def extensions(target: str, clock: Clock) -> tuple[Extension, ...]:
    """Those of the installed packages, by name."""
    return tuple(point.load()(target, clock) for point in sorted(entry_points(group=GROUP), key=lambda point: point.name))


__all__ = ["Extension", "Followed", "extensions"]
