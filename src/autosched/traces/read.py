"""Reads a trace file of any known format."""

from __future__ import annotations

from pathlib import Path

from autosched.sim.trace import Trace
from autosched.traces.columns import first_line
from autosched.traces.trace_format import TraceFormat
from autoscout.core import plugins
from autoscout.core.errors import ConfigError, Fault, PluginError


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
    return trace_format.read(path).finish(drop_bad=drop_bad)


def detect(path: Path) -> str:
    """The name of the format of a file, by its first line.

    Raises:
        ConfigError: it is of no known format.
    """
    head = first_line(path)
    matching = [(-kind.precedence, name) for name, kind in _usable().items() if kind().matches(head, path)]
    if matching:
        return min(matching)[1]
    raise ConfigError(
        Fault(
            where=str(path),
            value=head[:120],
            rule=f"looks like none of the known formats: {', '.join(plugins.available('trace-format'))}",
            fix="Name it with --format, or write a CSV with the columns job_id,submit_time,duration,gpus",
        )
    )


def _usable() -> dict[str, type[TraceFormat]]:
    """Name -> class of the formats that can be used here; `autoscout doctor` says what is wrong with the others."""
    kinds = {}
    for name in plugins.available("trace-format"):
        try:
            kinds[name] = plugins.get("trace-format", name)
        except PluginError:
            continue
    return kinds
