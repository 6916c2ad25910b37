"""Tables by job: further columns, an order of jobs that arrive together, outcomes to compare with."""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from autosched.kernel.records import Vector
from autosched.sim.result import Result
from autosched.sim.trace import Trace, examples
from autoscout.common.text import plural
from autoscout.core.errors import ConfigError, Fault

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


def in_order(trace: Trace, path: Path) -> Trace:
    """Jobs that arrive together in the order of a table; those it does not name come last."""
    position = {job: number for number, job in enumerate(table(path))}
    rank = np.asarray([position.get(job, len(position)) for job in trace.job_id.tolist()])
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
            rule = f"no number in this column for {plural(int(missing.sum()), 'job')}: {examples(trace.job_id[missing])}"
            faults.append(Fault(where=file, field=column, rule=rule))
        trace = trace.with_extra(**{name: values})
    if faults:
        raise ConfigError(faults)
    return trace


def numbers(rows: dict[str, dict[str, str]], column: str, trace: Trace) -> Vector:
    """A column in the order of the trace, not-a-number where it says nothing."""

    def number(job: str) -> float:
        try:
            return float(rows[job][column] or "nan")
        except (KeyError, ValueError):
            return math.nan

    return np.asarray([number(job) for job in trace.job_id.tolist()])


def agreement(result: Result, path: Path) -> dict[str, int]:
    """How many jobs start, end and are preempted as a table says, in those of the columns start_time, end_time, preemptions that it has."""
    rows = table(path)
    there = next(iter(rows.values()))
    ours = {"starts": result.start_s, "ends": result.end_s, "preemptions": result.preemptions}
    matches = {name: int((ours[name] == numbers(rows, column, result.trace)).sum()) for name, column in OUTCOMES.items() if column in there}
    if not matches:
        raise ConfigError(Fault(where=str(path), rule=f"needs one of the columns {', '.join(OUTCOMES.values())}"))
    return matches
