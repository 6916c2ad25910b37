"""`autoscout compare`: several studies next to each other, such as one for each load."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from autoscout.cli import complete, options
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.reading import only_reading
from autoscout.report.across import across, across_table, to_json
from autoscout.study.folder import Folder

REPORT = "report.json"


@only_reading()
def compare(
    folders: Annotated[list[Path], typer.Argument(autocompletion=complete.folders, help="Result folders of studies of one system.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """What wins where: the answers of several studies next to each other, by what sets their loads apart."""
    documents = [report_of(folder) for folder in folders]
    systems = sorted({str(one["task"]["system"]) for one in documents})
    goals = sorted({str(one["task"]["objective"]["metric"]) for one in documents})
    for field, names in (("system", systems), ("goal", goals)):
        if len(names) > 1:
            rule = "studies that are compared have the same"
            raise ConfigError(Fault(where="compare", field=field, value=", ".join(names), rule=rule, fix="Name those of one"))
    rows = across(documents)
    if as_json:
        options.emit(to_json(rows))
        return
    options.console.print(across_table(rows))


def report_of(folder: Path) -> Mapping[str, Any]:
    """The report of a study, as its folder has it."""
    home = Folder(folder)
    home.spec()
    path = home.path / REPORT
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        fix = f"autoscout report {folder} writes it"
        raise ConfigError(Fault(where=str(path), rule=f"cannot be read: {error}", fix=fix)) from error
    return data
