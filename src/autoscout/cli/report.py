"""`autoscout report`: what a study has found so far, while it runs or after."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autoscout.cli import _options as options
from autoscout.cli._result import show_result
from autoscout.study.assemble import look, prepare
from autoscout.study.folder import Folder
from autoscout.study.publish import write_findings


def report(
    folder: Annotated[Path, typer.Argument(help="A result folder.")],
    store: Annotated[str | None, typer.Option(help="postgresql:// URL, when the one on record lacks its password.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Write report.html, summary.csv and best/ again from the stored trials, and show the result."""
    home = Folder(folder)
    home.spec()
    setup = prepare(options.load(str(home.campaign), options.Flags(store=store)))
    result = look(setup, home)
    show_result(result, write_findings(result), as_json=as_json)
