"""The ledger: every decision with its state, and an audit log that only grows. Written before the cluster is touched."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from autosched.control.tables import CONTROL, audit, decisions, samples
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, Fault, StoreError
from autoscout.core.log import NOTICES, logger
from autoscout.store.sql.database import Database
from autoscout.store.sql.statements import UNREADABLE

notices = logger(NOTICES)

STATES = {
    "same": "nothing better was found, or not by enough",
    "observed": "what would have been changed, in the mode observe or where it was held back",
    "proposed": "waits for somebody to approve it",
    "approved": "somebody approved it; applied at the next look",
    "refused": "somebody refused it, bounds forbid it, a better proposal took its place, or other settings came into force",
    "applying": "written down before the cluster is touched",
    "applied": "the cluster has it; its gain is still to be measured",
    "kept": "its gain was measured, and it stays",
    "undone": "rolled back",
    "failed": "the cluster did not take it; the settings before are in force",
    "unsure": "the cluster did not answer: what it has is checked before anything else",
}
"""State of a decision -> what it means."""
OPEN = ("applying", "unsure")
"""States in which the cluster may have either configuration."""
MOST_ROWS = 10_000
MOST_DEPTH = 60  # of what a row holds: the plan of Kueue, whole objects of Kubernetes, has a dozen
Line = tuple[int, float, int | None, str, str]
"""Of the audit log: number, moment, decision, event, words."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A decision as the ledger keeps it.

    Attributes:
        id: Its number; 0 before it is kept.
        at_s: When it was made.
        state: One of `STATES`.
        kind: `hourly`, `watch` (in between), `operator`, or `rollback`.
        before, after: Settings.
        predicted, low, high: Predicted gain and its interval; NaN where nothing was predicted.
        words: Why, for people.
        contributions: Knob -> how many times worse the outcome would be with it as before: the effect of that change alone.
        measured: Measured gain of the period after it; NaN until then.
        of: For a rollback, the decision that it takes back.
        by: Who asked for it; empty: the controller.
        applied_s: When the cluster had it; NaN before.
        diff: What was changed in files or objects, for people.
        plan: What the live scheduler needs to apply it or take it back.
        bias: How many times longer jobs took before it than in a simulation with the settings before.
        load, waiting, unfinished, simulations: What was seen and tried.
        why: Why it is in this state, for people.
    """

    id: int = 0
    at_s: float
    state: str
    kind: str
    before: Config
    after: Config
    predicted: float = math.nan
    low: float = math.nan
    high: float = math.nan
    words: str = ""
    contributions: Mapping[str, float] = field(default_factory=dict)
    measured: float = math.nan
    of: int = 0
    by: str = ""
    applied_s: float = math.nan
    diff: str = ""
    plan: Mapping[str, Any] = field(default_factory=dict)
    bias: float = 1.0
    load: float = math.nan
    waiting: int = 0
    unfinished: int = 0
    simulations: int = 0
    why: str = ""

    @property
    def changes(self) -> dict[str, tuple[Any, Any]]:
        """Knob -> value before and after."""
        names = [*self.after, *(name for name in self.before if name not in self.after)]
        return {name: (self.before.get(name), self.after.get(name)) for name in names if self.before.get(name) != self.after.get(name)}

    def to_json(self) -> dict[str, Any]:
        """As JSON, numbers that are not there as null."""
        data = {**asdict(self), "before": self.before.to_json(), "after": self.after.to_json()}
        return {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in data.items()}


class Ledger:
    """Decisions, audit log and samples of one cluster.

    Args:
        target: Path of a SQLite file, or a `postgresql://` URL.
        cluster: Whose.
        create: Whether a file that does not exist is begun.

    Raises:
        StoreError: it cannot be opened.
    """

    def __init__(self, target: str | os.PathLike[str], cluster: str, *, create: bool = True) -> None:
        self._database = Database(target, create, CONTROL)
        self.cluster = cluster
        self._named: set[object] = set()  # damaged rows that were named already

    def add(self, entry: Entry, event: str, words: str) -> Entry:
        """Keep a new decision, and say so in the audit log; returns it with its number."""

        def work(connection: Connection, _: bool) -> int:
            row = {"cluster": self.cluster, "at_s": entry.at_s, "state": entry.state, "kind": entry.kind, "data": _encode(entry)}
            key = connection.execute(insert(decisions).values(row)).inserted_primary_key
            assert key is not None
            self._log(connection, entry.at_s, int(key[0]), event, words)
            return int(key[0])

        return replace(entry, id=self._database.write(work))

    def move(self, entry: Entry, to: str, at_s: float, event: str, words: str, **changes: Any) -> Entry:
        """Bring a decision from the state it is in to another; the audit log says so in the same transaction.

        Raises:
            ConfigError: it is no longer in that state: somebody else has moved it.
        """
        moved = replace(entry, state=to, **changes)

        def work(connection: Connection, again: bool) -> None:
            mine = (decisions.c.id == entry.id, decisions.c.cluster == self.cluster)
            statement = update(decisions).where(*mine, decisions.c.state == entry.state).values(state=to, data=_encode(moved))
            if connection.execute(statement).rowcount == 1:
                self._log(connection, at_s, entry.id, event, words)
                return
            now = connection.execute(select(decisions.c.state).where(*mine)).scalar()
            if again and now == to:
                return  # done by the attempt whose answer never reached us
            rule = f"is {now or 'not there'}, no longer {entry.state}"
            raise ConfigError(Fault(where="decision", field="id", value=str(entry.id), rule=rule, fix="Look at it again"))

        self._database.write(work)
        return moved

    def note(self, at_s: float, event: str, words: str, decision: int | None = None) -> None:
        """A line of the audit log."""
        self._database.write(lambda connection, _: self._log(connection, at_s, decision, event, words))

    def entry(self, number: int) -> Entry:
        """A decision by its number.

        Raises:
            ConfigError: there is none.
        """
        entries = self._entries(decisions.c.id == number)
        if not entries:
            rule, fix = f"there is no such decision of {self.cluster}", "autoscout sched history lists them"
            raise ConfigError(Fault(where="decision", field="id", value=str(number), rule=rule, fix=fix))
        return entries[0]

    def entries(self, numbers: Iterable[int]) -> list[Entry]:
        """Some decisions by their numbers, oldest first; those that are not there are left out."""
        return self._entries(decisions.c.id.in_(sorted(numbers)), lenient=True)

    def rollbacks(self, of: Entry) -> list[Entry]:
        """Requests to take a decision back, oldest first."""
        return [entry for entry in self._entries(decisions.c.kind == "rollback", decisions.c.id > of.id) if entry.of == of.id]

    def in_state(self, *states: str) -> list[Entry]:
        """Decisions in these states, oldest first."""
        return self._entries(decisions.c.state.in_(states))

    def last(self, *kinds: str) -> Entry | None:
        """The newest decision of these kinds."""
        return next(iter(self._entries(decisions.c.kind.in_(kinds), most=1)), None)

    def history(self, from_s: float = -math.inf, to_s: float = math.inf, most: int = MOST_ROWS) -> list[Entry]:
        """Decisions made in [from, to), the newest `most` of them, oldest first."""
        return self._entries(*_between(decisions.c.at_s, from_s, to_s), most=most, lenient=True)

    def log(self, from_s: float = -math.inf, to_s: float = math.inf, *, after: int = 0, decision: int | None = None) -> list[Line]:
        """The newest lines of the audit log, oldest first.

        Args:
            from_s, to_s: Only those written in [from, to).
            after: Only those with a higher number.
            decision: Only those about this decision.
        """
        about = [] if decision is None else [audit.c.decision == decision]
        where = (audit.c.cluster == self.cluster, audit.c.id > after, *about, *_between(audit.c.at_s, from_s, to_s))
        query = select(audit.c.id, audit.c.at_s, audit.c.decision, audit.c.event, audit.c.words).where(*where)
        newest_first = query.order_by(audit.c.id.desc()).limit(MOST_ROWS)
        rows = self._database.read(lambda connection: connection.execute(newest_first).all())
        return [(row.id, row.at_s, row.decision, row.event, row.words) for row in reversed(rows)]

    def last_line(self) -> int:
        """Number of the newest line of the audit log; 0 where there is none."""
        query = select(func.max(audit.c.id)).where(audit.c.cluster == self.cluster)
        return int(self._database.read(lambda connection: connection.execute(query).scalar()) or 0)

    def sample(self, at_s: float, data: Mapping[str, Any]) -> None:
        """What was seen of the cluster at a moment; a second one for the same moment changes nothing."""

        def work(connection: Connection, _: bool) -> None:
            kind = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
            row = {"cluster": self.cluster, "at_s": at_s, "data": json.dumps(data)}
            connection.execute(kind(samples).values(row).on_conflict_do_nothing())

        self._database.write(work)

    def samples(self, from_s: float = -math.inf, to_s: float = math.inf, most: int | None = None) -> list[tuple[float, dict[str, Any]]]:
        """What was seen in [from, to), in order of time; with `most` about that number of them, spread evenly over the time."""
        where = [samples.c.cluster == self.cluster, *_between(samples.c.at_s, from_s, to_s)]

        def work(connection: Connection) -> list[tuple[float, dict[str, Any]]]:
            query = select(samples.c.at_s, samples.c.data).where(*where).order_by(samples.c.at_s)
            ends = select(func.min(samples.c.at_s), func.max(samples.c.at_s), func.count()).where(*where)
            first, last, there = connection.execute(ends).one()
            if most is not None and there > most:
                piece = func.round((samples.c.at_s - first) / (last - first) * (most - 1))
                query = query.where(samples.c.at_s.in_(select(func.max(samples.c.at_s)).where(*where).group_by(piece)))
            return [sample for row in connection.execute(query) if (sample := self._seen(row)) is not None]

        return self._database.read(work)

    def forget(self, before_s: float) -> None:
        """Drop what was seen of the cluster before a moment; decisions and the audit log stay."""
        old = delete(samples).where(samples.c.cluster == self.cluster, samples.c.at_s < before_s)
        self._database.write(lambda connection, _: connection.execute(old))

    def last_sample(self) -> tuple[float, dict[str, Any]] | None:
        """What was seen last."""
        query = select(samples.c.at_s, samples.c.data).where(samples.c.cluster == self.cluster).order_by(samples.c.at_s.desc())

        def work(connection: Connection) -> tuple[float, dict[str, Any]] | None:
            rows = connection.execute(query.execution_options(yield_per=1))
            return next((sample for row in rows if (sample := self._seen(row)) is not None), None)

        return self._database.read(work)

    def _seen(self, row: Row[Any, Any]) -> tuple[float, dict[str, Any]] | None:
        """A sample; None for a damaged one, which is named once and left out: the next look at the cluster makes another."""
        try:
            data = _shallow(json.loads(row.data))
            _check_sample(data)
            return float(row.at_s), data
        except UNREADABLE as error:
            if row.at_s not in self._named:
                self._named.add(row.at_s)
                words = "%s: the sample of %s at %s cannot be read and is left out: %s"
                notices.warning(words, self._database.location, self.cluster, row.at_s, error)
            return None

    def close(self) -> None:
        """Let go of all connections."""
        self._database.close()

    def _log(self, connection: Connection, at_s: float, decision: int | None, event: str, words: str) -> None:
        row = {"cluster": self.cluster, "at_s": at_s, "decision": decision, "event": event, "words": words}
        connection.execute(insert(audit).values(row))

    def _entries(self, *where: Any, most: int = MOST_ROWS, lenient: bool = False) -> list[Entry]:
        """Decisions that meet conditions. One that cannot be read ends a controller, which must know all that it has done; those who only
        look on are `lenient`: it is named and left out."""
        query = select(decisions).where(decisions.c.cluster == self.cluster, *where).order_by(decisions.c.id.desc()).limit(most)
        read: Callable[[Connection], Sequence[Row[Any]]] = lambda connection: connection.execute(query).all()  # noqa: E731
        entries: list[Entry] = []
        for row in reversed(self._database.read(read)):
            try:
                entries.append(self._decode(row))
            except StoreError as error:
                if not lenient:
                    raise
                if ("decision", row.id) not in self._named:
                    self._named.add(("decision", row.id))
                    notices.warning("%s; it is left out", error)
        return entries

    def _decode(self, row: Row[Any]) -> Entry:
        try:
            data = _shallow(json.loads(row.data))
            values: dict[str, Any] = {each.name: data[each.name] for each in fields(Entry) if each.name in data}
            values |= {"id": row.id, "at_s": row.at_s, "state": row.state, "before": Config(data["before"]), "after": Config(data["after"])}
            floats = ("predicted", "low", "high", "measured", "applied_s", "load")
            values |= {name: math.nan for name in floats if values.get(name) is None}
            _check_entry(values)
            return Entry(**values)
        except UNREADABLE as error:
            rule = f"decision {row.id} cannot be read: {error}"
            raise StoreError(Fault(where=self._database.location, rule=rule, fix="Was the database edited by hand?")) from error


_KINDS: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (int, float)}


def _check_entry(values: Mapping[str, Any]) -> None:
    """See that what a decision holds is of its kind.

    Raises:
        TypeError: it is not.
    """
    for each in fields(Entry):
        value, kinds = values.get(each.name), _KINDS.get(str(each.type), (Mapping,))
        if each.name in values and (not isinstance(value, kinds) or isinstance(value, bool)):
            raise TypeError(f"{each.name} must be {each.type}, not {value!r:.40}")
    for name, value in values.get("contributions", {}).items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError(f"contributions.{name} must be a number, not {value!r:.40}")


def _check_sample(data: Any) -> None:
    """See that a sample is one.

    Raises:
        ValueError, TypeError: it is not.
    """
    if not isinstance(data, dict) or not isinstance(data.get("settings", {}), dict):
        raise TypeError("a sample maps names to what was seen, and settings to their values")
    allowed = data.get("allowed", {})
    if not isinstance(allowed, dict) or not all(isinstance(each, dict) and _is_rule(each) for each in allowed.values()):
        raise TypeError("allowed maps names to what bounds allow")
    for name, value in data.get("settings", {}).items():
        if not isinstance(value, (str, int, float, type(None))) or (isinstance(value, float) and not math.isfinite(value)):
            raise ValueError(f"settings.{name} must be a scalar, not {value!r:.40}")
    for name in ("load", "waiting", "running"):
        value = data.get(name, 0)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise ValueError(f"{name} must be a number, not {value!r:.40}")


def _shallow(data: Any) -> Any:
    """What was stored, if it is not nested so deeply that showing it ends in a RecursionError.

    Raises:
        ValueError: it is.
    """
    level = [data]
    for _ in range(MOST_DEPTH):
        level = [value for each in level for value in (each.values() if isinstance(each, dict) else each if isinstance(each, list) else ())]
        if not level:
            return data
    raise ValueError(f"nested more than {MOST_DEPTH} deep")


def _is_rule(rule: Mapping[str, Any]) -> bool:
    """Whether it is one of `Bounds.allowed`."""
    between, among = rule.get("between"), rule.get("among")
    numbers = isinstance(between, list) and len(between) == 2 and all(isinstance(each, (int, float)) for each in between)
    return numbers if "between" in rule else isinstance(among, list)


def _between(column: Any, from_s: float, to_s: float) -> list[Any]:
    return [*([column >= from_s] if math.isfinite(from_s) else []), *([column < to_s] if math.isfinite(to_s) else [])]


def _encode(entry: Entry) -> str:
    return json.dumps(entry.to_json(), allow_nan=False)
