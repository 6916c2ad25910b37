"""Where a trace comes from: a file of any known format, or a synthetic one by name, cut to a period and to some outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import Field

from autosched.arrivals.synthetic import Recipe, generate
from autosched.sim.cluster import Cluster
from autosched.sim.engine import Change
from autosched.sim.settings import configured
from autosched.sim.snapshot import Snapshot
from autosched.sim.snapshot_file import SUFFIX, read_snapshot
from autosched.sim.trace import Trace
from autosched.traces.read import read
from autosched.traces.slurm_queue import read_queue
from autoscout.common.document import load
from autoscout.common.fields import Block, read_fields
from autoscout.core import plugins
from autoscout.core.errors import AutoScoutError, ConfigError, Fault

SYNTHETIC = "synthetic:"


class _Entry(Block):
    """One entry of a list of changes."""

    at: float | str
    scheduler: str = ""
    set: dict[str, Any] = Field(default_factory=dict)


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
        trace = trace.between(moment(begin, "from", float("-inf")), moment(end, "to", float("inf")))
    if status:
        trace = trace.with_status(*status)
    if not len(trace):
        raise ConfigError(Fault(where=source, rule="no job is left", fix="Widen from, to and status"))
    return trace


def load_snapshot(path: Path, seen_s: float) -> Snapshot:
    """The snapshot of a file: one that AutoScout wrote, or what `squeue` or `sacct` printed at `seen_s`.

    Raises:
        ConfigError: it cannot be read, or the moment of a printed one is not said.
    """
    if not path.exists():
        raise ConfigError(Fault(where=str(path), rule="there is no such file"))
    if path.suffix == SUFFIX:
        return read_snapshot(path)
    if seen_s != seen_s:
        rule, fix = "needs the moment at which it was printed", "--seen 2024-05-01T12:00"
        raise ConfigError(Fault(where=str(path), field="seen", rule=rule, fix=fix))
    return read_queue(path, seen_s)


def read_changes(path: Path, scheduler: str, cluster: Cluster) -> list[Change]:
    """Later configurations: a YAML list of `at` (seconds or a date), and `scheduler` or `set` (knobs) or both.

    Raises:
        ConfigError: all entries that cannot be read.
    """
    listed = load(path).value
    entries = listed if isinstance(listed, list) else [listed]
    changes: list[Change] = []
    faults: list[Fault] = []
    for number, entry in enumerate(entries):
        where = f"{path}[{number}]"
        fields, wrong = read_fields(_Entry, entry if isinstance(entry, dict) else {}, where)
        faults += wrong
        if fields is None:
            continue
        name = fields.scheduler or scheduler
        try:
            kind = plugins.get("scheduler", name)
            config = configured(kind.space(cluster), {knob: str(value) for knob, value in fields.set.items()}, where)
            changes.append(Change(at_s=moment(str(fields.at), "at", 0.0), scheduler=kind.of(config)))
        except AutoScoutError as error:
            faults += [replace(fault, where=where) for fault in error.faults]
    if faults:
        raise ConfigError(faults)
    return changes


def _synthetic(source: str) -> Trace:
    parts = source.split(":")[1:]
    names = ("profile", "jobs", "days", "seed")
    kinds: tuple[Any, ...] = (str, int, float, int)
    try:
        fields = {name: kind(text) for name, kind, text in zip(names, kinds, parts, strict=False) if text}
    except ValueError as error:
        rule, fix = f"must read synthetic:PROFILE[:JOBS[:DAYS[:SEED]]]: {error}", "Example: synthetic:venus:20000:14:1"
        raise ConfigError(Fault(where="trace", value=source, rule=rule, fix=fix)) from error
    return generate(Recipe(**fields))


def moment(text: str, field: str, otherwise: float) -> float:
    """Seconds or a date as seconds; `otherwise` where nothing is said."""
    if not text:
        return otherwise
    try:
        return float(text)
    except ValueError:
        pass
    try:
        date = datetime.fromisoformat(text)
    except ValueError as error:
        rule = "must be seconds or a date such as 2017-09-22 or 2017-09-22T08:00"
        raise ConfigError(Fault(where="trace", field=field, value=text, rule=rule)) from error
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
