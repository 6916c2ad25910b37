"""Tables of text: opening files, reading their columns, and turning those into numbers and moments."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from autosched.sim.trace import spans
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
class TextTable:
    """A delimited file as columns of text."""

    path: Path
    names: list[str]
    values: dict[str, Texts]
    lines: NDArray[np.int64]

    @classmethod
    def read(cls, path: Path, *, delimiter: str = ",", header: Sequence[str] | None = None) -> TextTable:
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
        """A column of numbers; NaN where the text is no number."""
        return to_numbers(self.values[name])

    def times(self, name: str, zone_h: float = 0.0) -> NDArray[np.float64]:
        """A column of moments: seconds, or dates read in the given zone unless they name their own."""
        return to_times(self.values[name], zone_h)


def to_numbers(texts: Texts) -> NDArray[np.float64]:
    """Numbers; NaN where the text is no number."""
    try:
        return np.asarray(texts, np.float64) if len(texts) else np.empty(0)
    except ValueError:
        return np.asarray([_number(text) for text in texts])


def to_times(texts: Texts, zone_h: float = 0.0) -> NDArray[np.float64]:
    """Seconds of the epoch; NaN where the text is no moment."""
    zone = UTC if zone_h == 0 else timezone(timedelta(hours=zone_h))
    moments: dict[str, float] = {}
    return np.asarray([moments[text] if text in moments else moments.setdefault(text, _moment(text, zone)) for text in texts], np.float64)


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
