"""What a store says about the clusters that are controlled with it, for readers who change nothing: the dashboard, reports."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, func, select

from autosched.control.ledger import MOST_ROWS, Entry, Ledger, Line
from autosched.control.tables import CONTROL, decisions, samples
from autoscout.core.config import Value
from autoscout.core.secrecy import hide_secrets
from autoscout.store.sql.database import peek

MOST_POINTS = 1_000
"""Moments of an overview, spread evenly over its time: more than a picture shows."""
_REREAD_LINES = 50  # newest lines of the log that are read again: a server may show a line after one with a higher number
_MOST_CHANGED = 500  # decisions that have changed, above which everything is read anew


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

    def with_more(self, later: Overview) -> Overview:
        """The looks of this one and of a later one, with the decisions and the log of the later one."""
        names = dict.fromkeys([*self.knobs, *later.knobs])
        return replace(
            later,
            simulated=self.simulated or later.simulated,
            at_s=[*self.at_s, *later.at_s],
            load=[*self.load, *later.load],
            waiting=[*self.waiting, *later.waiting],
            running=[*self.running, *later.running],
            knobs={name: [value for each in (self, later) for value in each.knobs.get(name) or [None] * len(each.at_s)] for name in names},
        )

    def to_json(self) -> dict[str, Any]:
        """As JSON, for readers: numbers that are not there as null, without secrets, and without plans, which hold whole files."""
        entries = [{name: value for name, value in entry.to_json().items() if name != "plan"} for entry in self.entries]
        return {
            "cluster": self.cluster,
            "simulated": self.simulated,
            "decisions": [{**each, **{name: hide_secrets(each[name]) for name in ("words", "why", "diff")}} for each in entries],
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

    def work(connection: Connection, location: str) -> list[str]:
        return _names(connection) if CONTROL.are_in(connection, location) else []

    return peek(target, work)


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
        samples = ledger.samples(from_s, to_s, most_points)
        log, entries = ledger.log(from_s, to_s), ledger.history(from_s, to_s)
    finally:
        ledger.close()
    return _made(cluster, entries, log, samples)


def read_on(before: Overview, target: str | os.PathLike[str], most_points: int = MOST_POINTS) -> Overview:
    """The same cluster now, up to its newest moment: of its store only what was added since is read.

    Args:
        before: All of it, as it was read before.
        target: The store.
        most_points: As it was read with; it is thinned again, by reading all of it, when there are twice as many.

    Returns:
        The very same where nothing was added.

    Raises:
        StoreError: it cannot be opened.
    """
    newest = before.log[-1][0] if before.log else 0
    recent = [line for line in before.log[-_REREAD_LINES:] if line[0] > newest - _REREAD_LINES]
    ledger = Ledger(target, before.cluster, create=False)
    try:
        lines = ledger.log(after=max(0, newest - _REREAD_LINES))
        added = sorted(set(lines) - set(recent))
        touched = {line[2] for line in added if line[2] is not None}  # no decision changes without a line in the log
        another = not set(recent) <= set(lines)  # somebody has begun the store anew
        back = any(line[3] == "clock" for line in added)  # looks may have been added before the newest one
        if another or back or len(touched) > _MOST_CHANGED or len(before.at_s) > 2 * most_points:
            samples = ledger.samples(most=most_points)
            return _made(before.cluster, ledger.history(), ledger.log(), samples)
        last_s = before.at_s[-1] if before.at_s else -math.inf
        samples = [sample for sample in ledger.samples(last_s, most=most_points) if sample[0] > last_s]
        changed = {entry.id: entry for entry in (ledger.entries(touched) if touched else ())}
    finally:
        ledger.close()
    if not added and not samples:
        return before
    entries = sorted(({entry.id: entry for entry in before.entries} | changed).values(), key=lambda entry: entry.id)
    log = sorted([*before.log, *added]) if added else list(before.log)
    return before.with_more(_made(before.cluster, entries[-MOST_ROWS:], log[-MOST_ROWS:], samples))


def _made(cluster: str, entries: Sequence[Entry], log: Sequence[Line], samples: Sequence[tuple[float, dict[str, Any]]]) -> Overview:
    names = dict.fromkeys(name for _, data in samples for name in data.get("settings", {}))
    return Overview(
        cluster=cluster,
        simulated=any(data.get("simulated", False) for _, data in samples),
        entries=entries,
        log=log,
        at_s=[at_s for at_s, _ in samples],
        load=[float(data.get("load", math.nan)) for _, data in samples],
        waiting=[int(data.get("waiting", 0)) for _, data in samples],
        running=[int(data.get("running", 0)) for _, data in samples],
        knobs={name: [data.get("settings", {}).get(name) for _, data in samples] for name in names},
    )


def _names(connection: Connection) -> list[str]:
    """All clusters, from one to the next: an index finds the next one at once, where DISTINCT would read every row."""
    names: set[str] = set()
    for column in (samples.c.cluster, decisions.c.cluster):
        name: str | None = connection.execute(select(func.min(column))).scalar()
        while name is not None:
            names.add(name)
            name = connection.execute(select(func.min(column)).where(column > name)).scalar()
    return sorted(names)
