"""`autoscout report`: what a study has found so far, while it runs or after."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autoscout.cli import _options as options
from autoscout.cli._findings import show_result, write_findings
from autoscout.compose import Result, prepare
from autoscout.core import plugins
from autoscout.results import Folder
from autoscout.spending import Stop


def report(
    folder: Annotated[Path, typer.Argument(help="A result folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Write report.html, summary.csv and best/ again from the stored trials, and show the result."""
    home = Folder(folder)
    home.spec()
    setup = prepare(options.load(str(home.campaign), options.Flags()))
    store = plugins.get("store", "sql")(setup.campaign.store or home.store, create=False)
    try:
        trials = tuple(trial for batch in store.batches(setup.name) for trial in batch)
    finally:
        store.close()
    result = Result(setup=setup, folder=home, trials=trials, stop=Stop.INTERRUPTED)
    show_result(result, write_findings(result), as_json=as_json)
