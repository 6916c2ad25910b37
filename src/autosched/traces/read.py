"""Reads a trace file of any known format."""

from __future__ import annotations

from pathlib import Path

from autosched.sim.describe import doubts
from autosched.sim.trace import Trace
from autosched.traces.columns import first_line, open_text
from autosched.traces.trace_format import TableFormat, TraceFormat
from autoscout.core import plugins
from autoscout.core.errors import ConfigError, Fault, PluginError
from autoscout.core.log import NOTICES, logger

notices = logger(NOTICES)


def read(path: Path, *, form: str = "", drop_bad: bool = False) -> Trace:
    """Read a trace file, plain or gzipped.

    Args:
        path: The file; for PAI the task table or the folder with both tables.
        form: Name of its format; empty: look at the file.
        drop_bad: Leave broken rows and jobs without GPUs out, and record how many, instead of refusing the file.

    Raises:
        ConfigError: the file cannot be read, or rows are wrong: all of them at once.
        PluginError: the named format cannot be used here.
    """
    names = plugins.available("trace-format")
    if form and form not in names:
        raise ConfigError(Fault(where="--format", value=repr(form), rule=f"must be one of {', '.join(names)}"))
    if not path.exists():
        raise ConfigError(Fault(where=str(path), rule="there is no such file"))
    trace_format: TraceFormat = plugins.get("trace-format", form or detect(path))()
    trace = trace_format.read(path).finish(drop_bad=drop_bad)
    for doubt in doubts(trace):
        notices.warning("%s: %s", path, doubt)
    return trace


def detect(path: Path) -> str:
    """The name of the format of a file, by its first line.

    Raises:
        ConfigError: it is of no known format.
    """
    head = first_line(path)
    if not head and path.is_file() and not _has_text(path):
        rule, fix = "is empty", "A trace has a header and one row per job: job_id,submit_time,duration,gpus"
        raise ConfigError(Fault(where=str(path), rule=rule, fix=fix))
    matching = [(-kind.precedence, name) for name, kind in _usable().items() if kind().matches(head, path)]
    if matching:
        return min(matching)[1]
    if nearest := _nearest(head):
        name, missing = nearest
        rule, fix = f"columns are missing for a trace of the format {name}", "Add them, or rename those that hold the same"
        raise ConfigError(Fault(where=f"{path}:1", field=", ".join(missing), value=head[:120], rule=rule, fix=fix))
    raise ConfigError(
        Fault(
            where=str(path),
            value=head[:120],
            rule=f"looks like none of the known formats: {', '.join(plugins.available('trace-format'))}",
            fix="Name it with --format, or write a CSV with the columns job_id,submit_time,duration,gpus",
        )
    )


def _has_text(path: Path) -> bool:
    with open_text(path) as lines:
        return any(line.strip() for line in lines)


def _nearest(head: str) -> tuple[str, list[str]] | None:
    """The table format of which a header has at least half of the columns, the most of all, and what it lacks of them."""
    distances = []
    for name, kind in _usable().items():
        if issubclass(kind, TableFormat):
            here = {column.strip() for column in head.split(kind.delimiter)}
            missing = [column for column in kind.required if column not in here]
            if len(missing) <= len(kind.required) / 2:
                distances.append((len(missing) / len(kind.required), -kind.precedence, name, missing))
    return min(distances)[2:] if distances else None


def _usable() -> dict[str, type[TraceFormat]]:
    """Name -> class of the formats that can be used here; `autoscout doctor` says what is wrong with the others."""
    kinds = {}
    for name in plugins.available("trace-format"):
        try:
            kinds[name] = plugins.get("trace-format", name)
        except PluginError:
            continue
    return kinds
