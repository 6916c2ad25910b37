"""`autoscout report`: what a study has found so far, while it runs or after."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autoscout.cli import _options as options
from autoscout.cli._result import show_outcome
from autoscout.study.assemble import look
from autoscout.study.folder import Folder
from autoscout.study.publish import publish
from autoscout.study.setup import prepare


def report(
    folder: Annotated[Path, typer.Argument(help="A result folder.")],
    store: Annotated[str | None, typer.Option(help="postgresql:// URL, when the one on record lacks its password.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Write report.html, summary.csv and best/ again from the stored trials, and show the result."""
    home = Folder(folder)
    home.spec()
    setup = prepare(options.load(str(home.campaign), options.given(store=store)))
    show_outcome(publish(look(setup, home)), as_json=as_json)
