"""`autoscout drift`: whether a new study would pay on what users ask today; it changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autoscout.cli import complete, flags, options
from autoscout.cli.compare import report_of
from autoscout.core.errors import EXIT_OK, ConfigError, Fault
from autoscout.study.campaign import duration_s
from autoscout.study.drift import Pays, drift_of
from autoscout.study.folder import Folder
from autoscout.study.setup import prepare
from autoscout.traffic.read import read_traffic

EXIT_PAYS, EXIT_UNKNOWN = 10, 11
CODES = {Pays.NO: EXIT_OK, Pays.YES: EXIT_PAYS, Pays.UNKNOWN: EXIT_UNKNOWN}


def drift(
    folder: Annotated[Path, typer.Argument(autocompletion=complete.folders, help="The result folder of a study.")],
    traffic: Annotated[str, typer.Option(help="What users ask today: an address, a log, a trace, or a description.")],
    traffic_over: flags.TrafficOver = None,
    traffic_windows: flags.TrafficWindows = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Say in one line whether a new study would pay on today's traffic, by prediction. It changes nothing.

    Exit codes: 0 no, 10 yes, 11 cannot tell, 2 something must be fixed.
    """
    document = report_of(folder)
    answer = document["answer"]
    if not answer:
        rule, fix = "hands over no configuration yet", f"autoscout resume {folder}"
        raise ConfigError(Fault(where=str(folder), rule=rule, fix=fix))
    setup = prepare(options.load(str(Folder(folder).campaign)))
    now = read_traffic(traffic, duration_s(traffic_over) if traffic_over else 0.0, traffic_windows or 0)
    judgement = drift_of(setup, answer, now)
    if as_json:
        options.emit(judgement.to_json())
    else:
        options.console.print(judgement.line, markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(CODES[judgement.pays])


__all__ = ["EXIT_PAYS", "EXIT_UNKNOWN", "drift"]
