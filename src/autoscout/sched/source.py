"""Where a trace comes from: a file of any known format, or a synthetic one by name, cut to a period and to some outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autoscout.core.errors import ConfigError, Fault
from autoscout.sched.readers import read
from autoscout.sched.trace import Trace
from autoscout.sched.workload.synthetic import Recipe, generate

SYNTHETIC = "synthetic:"


def load_trace(source: str, *, form: str = "", begin: str = "", end: str = "", status: Sequence[str] = (), drop_bad: bool = False) -> Trace:
    """The jobs of a trace.

    Args:
        source: A file, or `synthetic:PROFILE[:JOBS[:DAYS[:SEED]]]`.
        form: Format of the file, where looking at it is not enough.
        begin: Only jobs that arrive at or after this date or second.
        end: Only jobs that arrive before this date or second.
        status: Only jobs that ended so.
        drop_bad: Leave broken rows out instead of refusing the file.

    Raises:
        ConfigError: it cannot be read, or no job is left; all faults of the file at once.
    """
    trace = _synthetic(source) if source.startswith(SYNTHETIC) else read(Path(source), form=form, drop_bad=drop_bad)
    if not len(trace):
        raise ConfigError(Fault(where=source, rule="there is no job in it", fix="A trace has a header and one row per job"))
    if begin or end:
        trace = trace.between(_moment(begin, "from", float("-inf")), _moment(end, "to", float("inf")))
    if status:
        trace = trace.with_status(*status)
    if not len(trace):
        raise ConfigError(Fault(where=source, rule="no job is left", fix="Widen from, to and status"))
    return trace


def _synthetic(source: str) -> Trace:
    parts = source.split(":")[1:]
    names = ("profile", "jobs", "days", "seed")
    kinds: tuple[Any, ...] = (str, int, float, int)
    try:
        given = {name: kind(text) for name, kind, text in zip(names, kinds, parts, strict=False) if text}
    except ValueError as error:
        rule, fix = f"must read synthetic:PROFILE[:JOBS[:DAYS[:SEED]]]: {error}", "Example: synthetic:venus:20000:14:1"
        raise ConfigError(Fault(where="trace", value=source, rule=rule, fix=fix)) from error
    return generate(Recipe(**given))


def _moment(text: str, field: str, otherwise: float) -> float:
    if not text:
        return otherwise
    try:
        return float(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        rule = "must be seconds or a date such as 2017-09-22 or 2017-09-22T08:00"
        raise ConfigError(Fault(where="trace", field=field, value=text, rule=rule)) from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
