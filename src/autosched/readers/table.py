"""What all readers share: opening files, columns of text, and turning them into a checked trace."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from autosched.sim.trace import Trace, check_columns, examples, spans
from autoscout.core.errors import ConfigError, Fault

Texts = Sequence[str]


def open_text(path: Path) -> TextIO:
    """A text file, gzipped or not."""
    return gzip.open(path, "rt", encoding="utf-8", newline="") if path.suffix == ".gz" else path.open(encoding="utf-8", newline="")


def first_line(path: Path) -> str:
    """The first line of a file, or of the first table in a folder."""
    if path.is_dir():
        return ""
    try:
        with open_text(path) as lines:
            return lines.readline().strip().lstrip("\ufeff")
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise ConfigError(Fault(where=str(path), rule=f"cannot be read as text: {error}")) from error


@dataclass
class Columns:
    """A delimited file as columns of text."""

    path: Path
    names: list[str]
    values: dict[str, Texts]
    lines: NDArray[np.int64]

    @classmethod
    def read(cls, path: Path, *, delimiter: str = ",", header: Sequence[str] | None = None) -> Columns:
        """Read the whole file; `header` for files that have none."""
        try:
            with open_text(path) as lines:
                reader = csv.reader(lines, delimiter=delimiter)
                names = list(header) if header is not None else [name.strip().lstrip("\ufeff") for name in next(reader, [])]
                rows, numbers, ragged = [], [], []
                for row in reader:
                    if len(row) == len(names):
                        rows.append(row)
                        numbers.append(reader.line_num)
                    elif row:
                        ragged.append(reader.line_num)
        except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error) as error:
            raise ConfigError(Fault(where=str(path), rule=f"cannot be read as a table: {error}", fix="Check the file")) from error
        if ragged:
            raise ConfigError(
                Fault(
                    where=str(path),
                    rule=f"{len(names)} columns expected (lines {spans(np.asarray(ragged))})",
                    fix="Fix or remove these lines",
                )
            )
        columns = list(zip(*rows, strict=True)) if rows else [() for _ in names]
        return cls(path, names, dict(zip(names, columns, strict=True)), np.asarray(numbers, np.int64))

    def __len__(self) -> int:
        return len(self.lines)

    def require(self, *names: str) -> None:
        """Refuse the file if columns are missing, all named at once."""
        missing = [name for name in names if name not in self.values]
        if missing:
            raise ConfigError(
                Fault(
                    where=f"{self.path}:1", field=", ".join(missing), rule="columns are missing", value=f"columns {', '.join(self.names)}"
                )
            )

    def text(self, name: str) -> Texts | None:
        """A column of text, None where the file has no such column."""
        return self.values.get(name)

    def numbers(self, name: str) -> NDArray[np.float64]:
        """A column of numbers; what is none becomes not-a-number."""
        return to_numbers(self.values[name])

    def times(self, name: str, zone_h: float = 0.0) -> NDArray[np.float64]:
        """A column of moments: seconds, or dates read in the given zone unless they name their own."""
        return to_times(self.values[name], zone_h)


def to_numbers(texts: Texts) -> NDArray[np.float64]:
    """Numbers; what is none becomes not-a-number."""
    try:
        return np.asarray(texts, np.float64) if len(texts) else np.empty(0)
    except ValueError:
        return np.asarray([_number(text) for text in texts])


def to_times(texts: Texts, zone_h: float = 0.0) -> NDArray[np.float64]:
    """Seconds of the epoch; what is no moment becomes not-a-number."""
    zone = UTC if zone_h == 0 else timezone(timedelta(hours=zone_h))
    known: dict[str, float] = {}
    return np.asarray([known[text] if text in known else known.setdefault(text, _moment(text, zone)) for text in texts], np.float64)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _moment(text: str, zone: timezone) -> float:
    number = _number(text)
    if number == number:
        return number
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return float("nan")
    return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()


@dataclass(kw_only=True)
class Draft:
    """Columns of a trace before they are checked.

    Attributes:
        lines: The line of each row in its file.
        filters: What the reader left out or changed, in words.
    """

    source: str
    lines: NDArray[np.int64]
    job_id: Texts
    submit_s: NDArray[np.float64]
    duration_s: NDArray[np.float64]
    gpus: NDArray[np.float64]
    user: Texts | None = None
    vc: Texts | None = None
    status: Texts | None = None
    name: Texts | None = None
    kind: Texts | None = None
    extra: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    filters: tuple[str, ...] = ()

    def finish(self, *, drop_bad: bool) -> Trace:
        """Check everything at once, then sort.

        Raises:
            ConfigError: rows are wrong and `drop_bad` is off.
        """
        ids = np.asarray(self.job_id, np.str_) if len(self.job_id) else np.empty(0, np.str_)
        filters = self.filters
        kept = np.arange(len(ids))
        if drop_bad:
            whole = (self.gpus <= 1) | (self.gpus == np.floor(self.gpus))
            good = np.isfinite(self.submit_s) & np.isfinite(self.duration_s) & (self.duration_s >= 0) & (self.gpus > 0) & whole
            first = np.zeros(len(ids), bool)
            first[np.unique(ids, return_index=True)[1]] = True
            kept = np.flatnonzero(good & first)
            if len(kept) < len(ids):
                dropped = np.setdiff1d(np.arange(len(ids)), kept)
                filters = (*filters, f"{len(dropped)} bad rows dropped ({examples(ids[dropped])})")
        else:
            faults = check_columns(self.source, ids, self.submit_s, self.duration_s, self.gpus, self.lines)
            if faults:
                raise ConfigError(faults)

        def label(texts: Texts | None) -> NDArray[np.str_] | None:
            return np.asarray(texts, np.str_)[kept] if texts is not None and len(texts) else None

        return Trace.of(
            self.submit_s[kept],
            self.duration_s[kept],
            self.gpus[kept],
            job_id=ids[kept],
            user=label(self.user),
            vc=label(self.vc),
            status=label(self.status),
            name=label(self.name),
            kind=label(self.kind),
            extra={name: column[kept] for name, column in self.extra.items()},
            source=self.source,
            filters=filters,
        )

    def only(self, chosen: NDArray[np.bool_], why: str) -> Draft:
        """The rows where `chosen`, with the reason on record."""
        index = np.flatnonzero(chosen)

        def pick(texts: Texts | None) -> Texts | None:
            return None if texts is None else [texts[int(i)] for i in index]

        return Draft(
            source=self.source,
            lines=self.lines[index],
            job_id=pick(self.job_id) or [],
            submit_s=self.submit_s[index],
            duration_s=self.duration_s[index],
            gpus=self.gpus[index],
            user=pick(self.user),
            vc=pick(self.vc),
            status=pick(self.status),
            name=pick(self.name),
            kind=pick(self.kind),
            extra={key: column[index] for key, column in self.extra.items()},
            filters=(*self.filters, f"{why}: {len(index)} of {len(self.lines)} jobs kept"),
        )
