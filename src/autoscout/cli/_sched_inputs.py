"""What `autoscout sched` reads besides the trace: further columns, an order of simultaneous jobs, outcomes to compare with."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import math
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError

from autoscout.common.fields import faults_from
from autoscout.core import plugins
from autoscout.core.errors import ConfigError, Fault
from autoscout.sched.cluster import Cluster
from autoscout.sched.result import Result
from autoscout.sched.trace import Trace, examples

OUTCOMES = {"starts": "start_time", "ends": "end_time", "preemptions": "preemptions"}


def table(path: Path) -> dict[str, dict[str, str]]:
    """The rows of a table (.csv or .csv.gz) by their job_id, in order."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
            rows = list(csv.DictReader(lines))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(Fault(where=str(path), rule=f"cannot be read as a table: {error}")) from error
    if not rows or "job_id" not in rows[0]:
        raise ConfigError(Fault(where=str(path), field="job_id", rule="the table must have a column job_id and at least one row"))
    return {row["job_id"]: row for row in rows}


def in_order(trace: Trace, path: Path | None) -> Trace:
    """Jobs that arrive together in the order of a table; those it does not name come last."""
    if path is None:
        return trace
    place = {job: number for number, job in enumerate(table(path))}
    rank = np.asarray([place.get(job, len(place)) for job in trace.job_id.tolist()])
    return trace.take(np.lexsort((rank, trace.submit_s)))


def with_columns(trace: Trace, texts: Sequence[str]) -> Trace:
    """The trace with columns of other tables.

    Raises:
        ConfigError: texts that do not read NAME=FILE:COLUMN, jobs without a number, all at once.
    """
    faults: list[Fault] = []
    for text in texts:
        name, equals, source = text.partition("=")
        file, colon, column = source.rpartition(":")
        if not equals or not colon:
            faults.append(Fault(where="--column", value=text, rule="must read NAME=FILE:COLUMN"))
            continue
        values = numbers(table(Path(file)), column, trace)
        missing = np.isnan(values)
        if missing.any():
            rule = f"{int(missing.sum())} jobs have no number in this column: {examples(trace.job_id[missing])}"
            faults.append(Fault(where=file, field=column, rule=rule))
        trace = trace.with_extra(**{name: values})
    if faults:
        raise ConfigError(faults)
    return trace


def numbers(rows: dict[str, dict[str, str]], column: str, trace: Trace) -> np.ndarray[Any, np.dtype[np.float64]]:
    """A column in the order of the trace, not-a-number where it says nothing."""

    def number(job: str) -> float:
        try:
            return float(rows[job][column] or "nan")
        except (KeyError, ValueError):
            return math.nan

    return np.asarray([number(job) for job in trace.job_id.tolist()])


def agreement_with(result: Result, path: Path) -> dict[str, int]:
    """How many jobs start, end and are preempted as a table says; of the columns start_time, end_time, preemptions those that are there."""
    rows = table(path)
    there = next(iter(rows.values()))
    ours = {"starts": result.start_s, "ends": result.end_s, "preemptions": result.preemptions}
    found = {name: int((ours[name] == numbers(rows, column, result.trace)).sum()) for name, column in OUTCOMES.items() if column in there}
    if not found:
        raise ConfigError(Fault(where=str(path), rule=f"needs one of the columns {', '.join(OUTCOMES.values())}"))
    return found


def scheduler_fields(scheduler: str, texts: Sequence[str]) -> tuple[tuple[str, object], ...]:
    """Fields of a scheduler that are no knobs, from NAME=VALUE.

    Raises:
        ConfigError: unknown names and values of a wrong kind, all at once.
    """
    kind: Any = plugins.get("scheduler", scheduler)
    knobs = kind.space(Cluster.parse("16x8")).knobs
    hints = typing.get_type_hints(kind)
    known = [field.name for field in dataclasses.fields(kind) if field.name not in knobs]
    faults: list[Fault] = []
    found: list[tuple[str, object]] = []
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or name not in known:
            faults.append(Fault(where="--option", value=text, rule=f"must read NAME=VALUE with one of {', '.join(known)}"))
            continue
        try:
            reader: TypeAdapter[Any] = TypeAdapter(hints[name], config=ConfigDict(arbitrary_types_allowed=True))
            found.append((name, reader.validate_python(yaml.safe_load(value) if value else "")))
        except ValidationError as error:
            faults += [dataclasses.replace(fault, field=name) for fault in faults_from(error, "--option")]
        except yaml.YAMLError:
            faults.append(Fault(where="--option", value=text, rule="cannot be read"))
    if faults:
        raise ConfigError(faults)
    return tuple(found)
