"""What a trace format is, and the commonest sort: a table with one row per job."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from autosched.traces.columns import TextTable
from autosched.traces.raw_trace import RawTrace


class TraceFormat(ABC):
    """A format of trace files: how to recognise a file, and how to read it.

    A plug-in of the kind `trace-format` is a subclass whose constructor takes no arguments. `matches` is asked about every file whose
    format the user did not name, so it looks at the first line and the path only, and answers yes for its own files alone. `read` returns
    the columns as they stand in the file; the caller checks them, names all bad rows at once and sorts. Files may be gzipped:
    `TextTable.read` and `open_text` open both.

    Attributes:
        precedence: Where several formats match a file, the one with the highest precedence reads it; the first by name among equals.
        example: Names of small files of this format -> their text, on which the conformance suite tries it. With several files the format
            reads their folder.
    """

    precedence: ClassVar[int] = 0
    example: ClassVar[Mapping[str, str]]

    @abstractmethod
    def matches(self, head: str, path: Path) -> bool:
        """Whether a file is of this format.

        Args:
            head: Its first line without white space at its ends; empty for a folder.
            path: The file or folder, which exists.
        """

    @abstractmethod
    def read(self, path: Path) -> RawTrace:
        """All jobs of a file; what is left out is named in `filters`.

        Raises:
            ConfigError: the file is not what `matches` took it for; all faults at once.
        """


class TableFormat(TraceFormat):
    """A delimited file with a header and one row per job: a declaration of what its columns are called.

    Attributes:
        columns: Field of `RawTrace` -> name of its column. A column of text may be absent from a file.
        required: TextTable by which a file is recognised; without them it is refused.
        extra: Numeric columns to keep where a file has them -> their names in the file.
        delimiter: What separates columns.
        zone_h: Hours from UTC of dates that do not name their zone.
        drops_cpu_jobs: Whether jobs without GPUs are left out; otherwise they are faults of the file.
    """

    columns: ClassVar[Mapping[str, str]]
    required: ClassVar[tuple[str, ...]]
    extra: ClassVar[Mapping[str, str]] = {}
    delimiter: ClassVar[str] = ","
    zone_h: ClassVar[float] = 0.0
    drops_cpu_jobs: ClassVar[bool] = True

    def matches(self, head: str, path: Path) -> bool:  # noqa: ARG002 (the columns are enough)
        """By the required columns."""
        return set(self.required) <= {name.strip() for name in head.split(self.delimiter)}

    def read(self, path: Path) -> RawTrace:
        table = TextTable.read(path, delimiter=self.delimiter)
        table.require(*self.required)
        texts = {name: table.text(self.columns[name]) for name in ("user", "vc", "status", "name", "kind") if name in self.columns}
        jobs = RawTrace(
            source=path.name,
            lines=table.lines,
            job_id=table.values[self.columns["job_id"]],
            submit_s=table.times(self.columns["submit_s"], self.zone_h),
            duration_s=self.duration_s(table),
            gpus=self.gpus(table),
            **texts,
            extra={name: table.numbers(column) for name, column in self.extra.items() if column in table.values},
            filters=self.filters(table),
        )
        return jobs.with_gpus() if self.drops_cpu_jobs else jobs

    def duration_s(self, table: TextTable) -> NDArray[np.float64]:
        """Seconds that each job ran."""
        return table.numbers(self.columns["duration_s"])

    def gpus(self, table: TextTable) -> NDArray[np.float64]:
        """GPUs of each job."""
        return table.numbers(self.columns["gpus"])

    def filters(self, table: TextTable) -> tuple[str, ...]:  # noqa: ARG002 (for formats that leave something out)
        """What the format leaves out of this file, in words."""
        return ()
