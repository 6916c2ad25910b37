"""Trace files: who can read which, and one function that reads any of them."""

from __future__ import annotations

import importlib
from pathlib import Path

from autosched.readers.table import Draft, first_line
from autosched.sim.trace import Trace
from autoscout.core.errors import ConfigError, Fault

READERS = ("plain", "philly", "helios", "acme", "alibaba", "pai", "sacct")
"""Names of the formats; each is a module here with `matches(head, path)` and `draft(path)`."""


def read(path: Path, *, form: str = "", drop_bad: bool = False) -> Trace:
    """Read a trace file, plain or gzipped.

    Args:
        path: The file; for PAI the task table or the folder with both tables.
        form: One of `READERS`; empty: look at the file.
        drop_bad: Leave broken rows and jobs without GPUs out, and record how many, instead of refusing the file.

    Raises:
        ConfigError: the file cannot be read, or rows are wrong: all of them at once.
    """
    if form and form not in READERS:
        raise ConfigError(Fault(where="--format", value=repr(form), rule=f"must be one of {', '.join(READERS)}"))
    if not path.exists():
        raise ConfigError(Fault(where=str(path), rule="there is no such file"))
    name = form or detect(path)
    draft: Draft = importlib.import_module(f"autosched.readers.{name}").draft(path)
    return draft.finish(drop_bad=drop_bad)


def detect(path: Path) -> str:
    """The format of a file, by its first line.

    Raises:
        ConfigError: no reader knows it.
    """
    head = first_line(path)
    for name in READERS:
        if importlib.import_module(f"autosched.readers.{name}").matches(head, path):
            return name
    raise ConfigError(
        Fault(
            where=str(path),
            value=head[:120],
            rule=f"looks like none of the known formats: {', '.join(READERS)}",
            fix="Name it with --format, or write a CSV with the columns job_id,submit_time,duration,gpus",
        )
    )
