"""Clusters whose schedulers a controller keeps tuned: found in the stores, and followed while the dashboard runs."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass, field

from autosched.control.overview import Overview, clusters, overview, read_on
from autosched.control.tables import CONTROL
from autoscout.core.clock import Clock, RealClock
from autoscout.store.sql.database import holds
from autoscout.store.sql.schema import STUDIES
from autoscout.store.sql.store import SqlStore
from autoscout.study.stores import scheme_of
from autoscout.web.marks import Marks

FILE = "control.db"
"""The store of a controller that was given none, in its folder."""
LOOK_S = 2.0
"""Seconds between two looks at a cluster."""
READ_PAUSE_FACTOR = 4.0  # it is read again only when this many times the seconds of the last reading have passed


@dataclass
class ClusterEntry:
    """One controlled cluster. Safe for several threads."""

    key: str
    target: str
    name: str
    clock: Clock = field(default_factory=RealClock)
    version: int = 0  # grows with everything that a page may show

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: Overview | None = None
        self._read_s = self._took_s = 0.0

    def overview(self) -> Overview:
        """What its store said last; the first caller waits for it."""
        if self._seen is None:
            self._read()
        assert self._seen is not None
        return self._seen

    @property
    def loaded(self) -> Overview | None:
        """The same, where it was read already."""
        return self._seen

    def follow(self) -> None:
        """Read on from where it was, if it is time."""
        if self._seen is None or self.clock.span_s() > self._read_s + max(LOOK_S, READ_PAUSE_FACTOR * self._took_s):
            self._read()

    def _read(self) -> None:
        with self._lock:
            begun_s, before = self.clock.span_s(), self._seen
            self._seen = overview(self.target, self.name) if before is None else read_on(before, self.target)
            self._read_s = self.clock.span_s()
            self._took_s = self._read_s - begun_s
            self.version += self._seen is not before


class Clusters:
    """The clusters of all stores that the dashboard knows."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._marks = Marks(clock)
        self._entries: dict[str, ClusterEntry] = {}

    def look(self, target: str) -> None:
        """Take in which clusters a store knows.

        Raises:
            StoreError: it cannot be read.
        """
        with self._marks.looking(target) as new:
            for name in clusters(target) if new and _is_sql(target) else ():
                key = hashlib.sha256(f"{target}\0cluster\0{name}".encode()).hexdigest()[:12]
                if key not in self._entries:
                    self._entries[key] = ClusterEntry(key=key, target=target, name=name, clock=self._clock)

    def entries(self) -> list[ClusterEntry]:
        """All clusters, by name."""
        return sorted(self._entries.values(), key=lambda entry: (entry.name, entry.target))

    def entry(self, key: str) -> ClusterEntry | None:
        return self._entries.get(key)


def is_controllers_own(target: str) -> bool:
    """Whether a store is a controller's and holds no studies; opening it as a store of studies would make their tables there."""
    return _is_sql(target) and holds(target, CONTROL, STUDIES) == (True, False)


def _is_sql(target: str) -> bool:
    return (scheme_of(target) or SqlStore.schemes[0]) in SqlStore.schemes


__all__ = ["FILE", "ClusterEntry", "Clusters", "is_controllers_own"]
