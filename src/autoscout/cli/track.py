"""`autoscout track`: show a study, which has ended or runs, in trackers."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from autoscout.cli import complete, options
from autoscout.core import plugins
from autoscout.core.errors import EXIT_BAD_INPUT, ConfigError, Fault
from autoscout.report.tracking import SEND_S, Tracking
from autoscout.study.campaign import build_campaign, read_campaign
from autoscout.study.folder import DEFAULT, Folder, newest


def track(
    folder: Annotated[
        Path | None,
        typer.Argument(autocompletion=complete.folders, help="A result folder; the newest in ./autoscout_results where none is named."),
    ] = None,
    to: Annotated[
        list[str] | None,
        typer.Option(
            autocompletion=complete.trackers,
            help="mlflow, wandb, trackio, tensorboard, optuna, or NAME:OPTION=VALUE; may be repeated. Those of the campaign when left out.",
        ),
    ] = None,
    store: Annotated[str | None, typer.Option(help="postgresql:// URL, when the one on record lacks its password.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Show a study in MLflow, Weights & Biases, Trackio, TensorBoard or an Optuna study.db; again: only what is new.

    `autoscout tune --track NAME` does the same while a study runs. Secrets and values of variables are left out.
    """
    home = Folder(folder) if folder is not None else newest(DEFAULT)
    home.spec()
    campaign = read_campaign(home.campaign)
    order = campaign if not to else build_campaign({"system": campaign.system, "track": to}, where="--to")
    own = {entry.name: entry for entry in campaign.track}
    entries = [entry if entry.options else own.get(entry.name, entry) for entry in order.track]
    if not entries:
        names = ", ".join(plugins.available("tracker"))
        raise ConfigError(Fault(where="command line", field="--to", rule="the campaign names no tracker", fix=f"Give one of: {names}"))
    place = store or campaign.store or str(home.store)
    answers = Tracking(entries, home, place, campaign.name or "", wait_s=SEND_S).close()
    if as_json:
        options.emit({"tracked": [asdict(one) for one in answers]})
    if not all(one.is_whole for one in answers):
        raise typer.Exit(EXIT_BAD_INPUT)
