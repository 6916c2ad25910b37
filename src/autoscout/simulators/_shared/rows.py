"""Tables of measurements row by row: what is refused, what is left out, and why."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autoscout.common.document import read_text
from autoscout.core.errors import ConfigError, Fault

SHOWN = 20  # faults of one file that are told one by one


@dataclass
class RowReport:
    """Rows of one table that were not used: wrong ones, which refuse the whole table, and ones that lack something."""

    name: str
    wrong: list[Fault] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def refuse(self) -> None:
        """Raise what is wrong, at most `SHOWN` at once."""
        if self.wrong:
            more = len(self.wrong) - SHOWN
            rest = [Fault(where=self.name, rule=f"{more} more rows have such faults")] if more > 0 else []
            raise ConfigError(self.wrong[:SHOWN] + rest)

    def without(self, line: int, error: Exception) -> None:
        """Note a row that cannot be used."""
        reason = "; ".join(_short(fault) for fault in error.faults) if isinstance(error, ConfigError) else f"cannot be read: {error}"
        self.left_out.append(f"{self.name}:{line}: {reason}"[:300])


def _short(fault: Fault) -> str:
    named = " ".join(part for part in (fault.field, fault.value) if part)
    return f"{named}: {fault.rule}" if named else fault.rule


def csv_rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Rows of a CSV file with their lines, without empty cells.

    Raises:
        ConfigError: no text, no header, or rows with more or fewer cells than the header: all of them are named.
    """
    text = read_text(path).removeprefix("\ufeff")
    if "\0" in text:
        raise ConfigError(Fault(where=str(path), rule="is no text: it holds zero bytes", fix="Give a CSV file"))
    reader = csv.reader(io.StringIO(text, newline=""))
    rows: list[tuple[int, list[str]]] = []
    try:
        for row in reader:
            if row:
                rows.append((reader.line_num, row))
    except csv.Error as error:
        where = f"{path}:{reader.line_num}"
        raise ConfigError(Fault(where=where, rule=f"not valid CSV: {error}", fix="Check quotes and commas")) from error
    header = rows[0][1] if rows else []
    if not header or len(set(header)) < len(header) or "" in header:
        raise ConfigError(Fault(where=str(path), rule="the first line must name every column once", fix="Give a CSV file with a header"))
    report = RowReport(name=str(path))
    report.wrong = [
        Fault(
            where=f"{path}:{line}", value=f"{len(row)} cells", rule=f"the header has {len(header)} columns", fix="Check commas and quotes"
        )
        for line, row in rows[1:]
        if len(row) != len(header)
    ]
    report.refuse()
    for line, row in rows[1:]:
        yield line, {name: cell.strip() for name, cell in zip(header, row, strict=True) if cell.strip()}


def positive(row: Mapping[str, Any], name: str) -> float:
    """A measured number; nan where the cell is empty.

    Raises:
        ConfigError: something else than a positive number.
    """
    cell = row.get(name)
    if cell is None or cell == "":
        return math.nan
    try:
        value = float(cell)
    except (TypeError, ValueError):
        value = math.nan
    if not 0.0 < value < math.inf:
        raise ConfigError(Fault(where="row", field=name, value=repr(cell), rule="must be a positive number"))
    return value


__all__ = ["RowReport", "csv_rows", "positive"]
