"""What a store says about the clusters that are controlled with it, for readers who change nothing: the dashboard, reports."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select, union

from autoscout.common.secrets import hide_secrets
from autoscout.control.explain import Line
from autoscout.control.ledger import Entry, Ledger
from autoscout.control.tables import CONTROL, decisions, samples
from autoscout.core.config import Value
from autoscout.store.sql.database import Database, holds

MOST_POINTS = 1_000
"""Moments of an overview, spread evenly over its time: more than a picture shows."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Overview:
    """A cluster over time.

    Attributes:
        cluster: Its name.
        simulated: Whether the cluster itself is a simulation.
        entries: Decisions, oldest first: why (`words`), what each change does (`contributions`), what became of it (`state`, `why`).
        log: The audit log, oldest first: number, moment, decision, event, words.
        at_s: Moments at which the cluster was looked at, ascending.
        load: At these moments: GPUs wanted, in times those there are.
        waiting, running: Jobs.
        knobs: Name of a setting -> its values at these moments; None where it was not told.
    """

    cluster: str
    simulated: bool
    entries: Sequence[Entry]
    log: Sequence[Line]
    at_s: Sequence[float]
    load: Sequence[float]
    waiting: Sequence[int]
    running: Sequence[int]
    knobs: Mapping[str, Sequence[Value | None]]

    @property
    def changed_knobs(self) -> dict[str, Sequence[Value | None]]:
        """The settings that had more than one value."""
        return {name: values for name, values in self.knobs.items() if len({repr(value) for value in values if value is not None}) > 1}

    @property
    def predictions(self) -> list[Entry]:
        """Changes, made or only observed, of which a gain was predicted; `measured` is NaN until a period has passed."""
        return [entry for entry in self.entries if entry.changes and math.isfinite(entry.predicted)]

    def to_json(self) -> dict[str, Any]:
        """As JSON, for readers: numbers that are not there as null, without secrets, and without plans, which hold whole files."""
        told = [{name: value for name, value in entry.to_json().items() if name != "plan"} for entry in self.entries]
        return {
            "cluster": self.cluster,
            "simulated": self.simulated,
            "decisions": [{**each, **{name: hide_secrets(each[name]) for name in ("words", "why", "diff")}} for each in told],
            "log": [
                dict(zip(("id", "at_s", "decision", "event", "words"), (*line[:4], hide_secrets(line[4])), strict=True))
                for line in self.log
            ],
            "at_s": list(self.at_s),
            "load": [value if math.isfinite(value) else None for value in self.load],
            "waiting": list(self.waiting),
            "running": list(self.running),
            "knobs": {name: list(values) for name, values in self.knobs.items()},
        }


def clusters(target: str | os.PathLike[str]) -> list[str]:
    """Names of the clusters that a store knows; none where no controller ever used it. Creates nothing.

    Args:
        target: Path of a SQLite file, or a `postgresql://` URL.

    Raises:
        StoreError: it cannot be opened, or a newer AutoScout wrote it.
    """
    if not holds(target, CONTROL):
        return []
    database = Database(target, False, CONTROL)
    try:
        return database.read(_names)
    finally:
        database.close()


def overview(
    target: str | os.PathLike[str], cluster: str, from_s: float = -math.inf, to_s: float = math.inf, most_points: int = MOST_POINTS
) -> Overview:
    """A cluster in [from, to).

    Args:
        target: A store of which `clusters` names the cluster.
        cluster: Its name.
        from_s, to_s: Span of time.
        most_points: How many looks at the cluster are read, spread evenly over the span.

    Raises:
        StoreError: it cannot be opened.
    """
    ledger = Ledger(target, cluster, create=False)
    try:
        seen = ledger.samples(from_s, to_s, most_points)
        entries, log = ledger.history(from_s, to_s), ledger.log(from_s, to_s)
    finally:
        ledger.close()
    names = dict.fromkeys(name for _, data in seen for name in data.get("settings", {}))
    return Overview(
        cluster=cluster,
        simulated=any(data.get("simulated", False) for _, data in seen),
        entries=entries,
        log=log,
        at_s=[at_s for at_s, _ in seen],
        load=[float(data.get("load", math.nan)) for _, data in seen],
        waiting=[int(data.get("waiting", 0)) for _, data in seen],
        running=[int(data.get("running", 0)) for _, data in seen],
        knobs={name: [data.get("settings", {}).get(name) for _, data in seen] for name in names},
    )


def _names(connection: Connection) -> list[str]:
    both = union(select(samples.c.cluster).distinct(), select(decisions.c.cluster).distinct())
    return sorted(connection.execute(both).scalars())
