"""`autoscout resume`: continue the study of a result folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autoscout.cli import complete, flags, options
from autoscout.cli.tune import show_dry_run, start
from autoscout.core.reading import only_reading
from autoscout.study.folder import Folder
from autoscout.study.setup import prepare


def resume(
    folder: Annotated[Path, typer.Argument(autocompletion=complete.folders, help="The result folder of an earlier `autoscout tune`.")],
    patience: Annotated[int | None, typer.Option(help="End the search after this many trials in a row that improve nothing.")] = None,
    max_trials: Annotated[int | None, typer.Option(help="Configurations to measure in all.")] = None,
    budget: Annotated[str | None, typer.Option(help="Time to spend in all: 90s, 10m, 2h.")] = None,
    max_cost: Annotated[str | None, typer.Option(help="Sum of the trials' own time in all.")] = None,
    workers: Annotated[int | None, typer.Option(help="Trials at once.")] = None,
    searcher_name: Annotated[
        str | None,
        typer.Option("--searcher", autocompletion=complete.searchers, help="Continue with another searcher; it is told all trials."),
    ] = None,
    finalists: Annotated[int | None, typer.Option(help="How many of the best meet the default again in the final.")] = None,
    rounds: Annotated[int | None, typer.Option(help="How often each is measured in the final.")] = None,
    store: Annotated[str | None, typer.Option(help="postgresql:// URL, when the one on record lacks its password.")] = None,
    track: flags.Track = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be tried next; nothing is started, and nothing of the folder is imported.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Continue where a study was stopped or killed; more budget may be given."""
    home = Folder(folder)
    home.spec()  # says so when this is no result folder
    given = options.given
    blocks = given(
        budget=given(trials=max_trials, wall=budget, cost=max_cost, patience=patience),
        search=given(workers=workers, searcher=searcher_name),
        finals=given(finalists=finalists, rounds=rounds),
        store=store,
        track=track,
    )
    if dry_run:
        with only_reading():
            show_dry_run(prepare(options.load(str(home.campaign), blocks)), home, as_json=as_json)
        return
    start(prepare(options.load(str(home.campaign), blocks)), home, as_json=as_json)
