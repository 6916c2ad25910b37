"""The workload repository: job events of clusters in a database, and the jobs that they tell of."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from sqlalchemy import Connection, delete, func, select
from sqlalchemy.dialects import postgresql, sqlite

from autosched.control.tables import CONTROL, events
from autosched.events import MOST_NAME, JobEvent, encode
from autosched.predict.features import Repository
from autosched.sim.trace import Trace
from autoscout.core.errors import ConfigError, Fault
from autoscout.store.sql.database import Database

HOUR_S = 3_600.0
CHUNK = 150  # rows in one statement: older SQLite takes 999 variables, and a row has six
BATCH = 5_000  # events in one transaction


@dataclass(frozen=True, kw_only=True)
class Added:
    """What became of events: how many were new, and how many were known already."""

    new: int = 0
    known: int = 0


@dataclass
class _Job:
    """What the events of a job say, whatever their order."""

    attributes: dict[str, Any] = field(default_factory=dict)
    submit_s: float = np.inf
    start_s: float = -np.inf
    requeue_s: float = -np.inf
    over_s: float = -np.inf
    first_s: float = np.inf

    def add(self, kind: str, at_s: float, attributes: dict[str, Any]) -> None:
        self.attributes.update(attributes)
        self.first_s = min(self.first_s, at_s)
        if kind == "submit":
            self.submit_s = min(self.submit_s, at_s)
        elif kind == "start":
            self.start_s = max(self.start_s, at_s)
        elif kind == "requeue":
            self.requeue_s = max(self.requeue_s, at_s)
        else:
            self.over_s = max(self.over_s, at_s)

    @property
    def came_s(self) -> float:
        return self.submit_s if np.isfinite(self.submit_s) else self.first_s

    @property
    def end_s(self) -> float:
        """When it ended; infinite while it has not, also when it was put back into the queue since."""
        return self.over_s if np.isfinite(self.over_s) and self.over_s >= self.requeue_s else np.inf

    @property
    def duration_s(self) -> float | None:
        """How long it ran; None for one that was cancelled while it waited."""
        if "duration_s" in self.attributes:
            return float(self.attributes["duration_s"])
        return self.end_s - self.start_s if np.isfinite(self.start_s) else None


class WorkloadRepository:
    """Job events, kept once each however often and in whatever order they come.

    Args:
        target: Path of a SQLite file, or a `postgresql://user@host/database` URL; may hold studies too.
        create: Whether a file that does not exist is begun.

    Raises:
        StoreError: it cannot be opened.
    """

    def __init__(self, target: str | os.PathLike[str], *, create: bool = True) -> None:
        self._database = Database(target, create, CONTROL)

    def add(self, cluster: str, job_events: Iterable[JobEvent]) -> Added:
        """Keep events; those that are known already change nothing. In batches, so that memory stays bounded.

        Raises:
            ConfigError: some are not events; those of earlier batches are kept.
        """
        if not cluster or len(cluster) > MOST_NAME:
            raise ConfigError(Fault(where="cluster", value=repr(cluster), rule=f"needs a name of at most {MOST_NAME} characters"))
        source, new, repeats, number = iter(job_events), 0, 0, 0
        while batch := list(islice(source, BATCH)):
            faults = [fault for index, event in enumerate(batch, number) for fault in event.faults(f"events[{index}]")]
            if faults:
                raise ConfigError(faults)
            rows = [_row(cluster, event) for event in batch]
            added = self._database.write(lambda connection, _, rows=rows: _insert(connection, rows))  # type: ignore[misc]
            new, repeats, number = new + added, repeats + len(batch) - added, number + len(batch)
        return Added(new=new, known=repeats)

    def jobs(self, cluster: str, from_s: float = -np.inf, to_s: float = np.inf) -> Repository:
        """The jobs that came in [from, to) and when each ended, for predictors and generators.

        Jobs that asked for no GPUs, and those cancelled before they started, are left out. A job that has not ended has its time limit as
        its duration, or an hour: predictors never look at it.
        """
        all_time = not np.isfinite(from_s)  # else the event that told of the arrival may lie before
        jobs = self._fold(cluster, from_s).items()
        folded = {
            job: each
            for job, each in jobs
            if from_s <= each.came_s < to_s and (all_time or np.isfinite(each.submit_s)) and _is_usable(each)
        }
        ids = list(folded)
        listed = list(folded.values())
        ends = np.asarray([each.end_s for each in listed], np.float64)
        durations = [
            max(0.0, float(each.duration_s or 0.0)) if np.isfinite(each.end_s) else float(each.attributes.get("estimate_s") or HOUR_S)
            for each in listed
        ]
        submit = np.asarray([each.came_s for each in listed], np.float64)
        limits = np.asarray([each.attributes.get("estimate_s", np.nan) for each in listed], np.float64)
        extra = {"estimate_s": np.where(np.isfinite(limits), limits, durations)} if np.isfinite(limits).any() else {}

        def texts(name: str) -> list[str]:
            return [str(each.attributes.get(name, "")) for each in listed]

        trace = Trace.of(
            submit,
            durations,
            [_whole(float(each.attributes["gpus"])) for each in listed],
            job_id=ids,
            user=texts("user"),
            vc=texts("vc"),
            name=texts("name"),
            kind=texts("gpu_kind"),
            extra=extra,
            source=f"repository of {cluster}",
        )
        return Repository(trace, ends[np.argsort(submit, kind="stable")])

    def counts(self, cluster: str) -> dict[int, int]:
        """Hour since the epoch -> events in it."""
        query = select(events.c.hour, func.count()).where(events.c.cluster == cluster).group_by(events.c.hour).order_by(events.c.hour)
        return self._database.read(lambda connection: {int(hour): int(number) for hour, number in connection.execute(query)})

    def forget(self, cluster: str, before_s: float) -> int:
        """Drop the events of jobs that were over before an hour began; returns how many events. Jobs that have not ended stay."""
        hour = int(np.floor(before_s / HOUR_S))
        over = select(events.c.job).where(events.c.cluster == cluster, events.c.kind.in_(("end", "cancel")))
        later = select(events.c.job).where(events.c.cluster == cluster, events.c.hour >= hour)
        old = delete(events).where(events.c.cluster == cluster, events.c.hour < hour, events.c.job.in_(over), events.c.job.not_in(later))
        return self._database.write(lambda connection, _: int(connection.execute(old).rowcount))

    def close(self) -> None:
        """Let go of all connections."""
        self._database.close()

    def _fold(self, cluster: str, from_s: float) -> dict[str, _Job]:
        columns = select(events.c.job, events.c.kind, events.c.at_s, events.c.data).where(events.c.cluster == cluster)
        if np.isfinite(from_s):
            columns = columns.where(events.c.hour >= int(np.floor(from_s / HOUR_S)))
        query = columns.order_by(events.c.at_s, events.c.job, events.c.kind)

        def read(connection: Connection) -> dict[str, _Job]:
            jobs: dict[str, _Job] = {}
            for job, kind, at_s, data in connection.execute(query):
                jobs.setdefault(job, _Job()).add(kind, at_s, json.loads(data))
            return jobs

        return self._database.read(read)


def _is_usable(job: _Job) -> bool:
    return float(job.attributes.get("gpus", 0.0)) > 0 and (not np.isfinite(job.end_s) or job.duration_s is not None)


def _whole(gpus: float) -> float:
    return gpus if gpus <= 1 else float(np.ceil(gpus))


def _row(cluster: str, event: JobEvent) -> dict[str, Any]:
    hour = int(np.floor(event.at_s / HOUR_S))
    return {"cluster": cluster, "job": event.job, "kind": event.kind, "at_s": event.at_s, "hour": hour, "data": encode(event.attributes)}


def _insert(connection: Connection, rows: Sequence[dict[str, Any]]) -> int:
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    added = 0
    for chunk in _chunks(rows):
        statement = insert(events).values(chunk).on_conflict_do_nothing().returning(events.c.at_s)  # drivers do not agree on row counts
        added += len(connection.execute(statement).all())
    return added


def _chunks(rows: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    for start in range(0, len(rows), CHUNK):
        yield list(rows[start : start + CHUNK])
