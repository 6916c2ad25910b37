"""`autoscout report`: what a study has found so far, while it runs or after."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Annotated

import typer

from autoscout.cli import complete, options
from autoscout.cli._result import publish_and_show
from autoscout.core.errors import EXIT_BAD_INPUT
from autoscout.core.reading import only_reading
from autoscout.report.sweep import sweep_files
from autoscout.study.assemble import look
from autoscout.study.folder import DEFAULT, Folder, newest
from autoscout.study.setup import prepare


@only_reading()
def report(
    folder: Annotated[
        Path | None,
        typer.Argument(autocompletion=complete.folders, help="A result folder; the newest in ./autoscout_results where none is named."),
    ] = None,
    store: Annotated[str | None, typer.Option(help="postgresql:// URL, when the one on record lacks its password.")] = None,
    sweep_dir: Annotated[Path | None, typer.Option(help="Write the trials there as `vllm bench sweep` does, for its plots.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Write report.html, summary.csv and best/ again from the stored trials, and show the result."""
    gc.disable()  # looking through a hundred thousand trials for cycles again and again takes longer than reading them
    home = Folder(folder) if folder is not None else newest(DEFAULT)
    home.spec()
    setup = prepare(options.load(str(home.campaign), options.given(store=store)))
    outcome = look(setup, home)
    if sweep_dir is not None:
        for name, text in sweep_files(outcome.inside, setup.space.knobs.values()).items():
            path = sweep_dir / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if not publish_and_show(outcome, as_json=as_json):
        raise typer.Exit(EXIT_BAD_INPUT)
