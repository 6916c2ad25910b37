"""The result of a study in the terminal, as JSON, and as an exit code."""

from __future__ import annotations

import shlex
from typing import Any

from autoscout.cli import _options as options
from autoscout.core.errors import EXIT_BAD_INPUT, EXIT_INTERRUPTED, EXIT_OK
from autoscout.report.tables import report_json
from autoscout.report.text import render
from autoscout.study.assemble import Result
from autoscout.study.budget import Stop
from autoscout.study.publish import Findings

MORE = {Stop.TRIALS: " --max-trials N", Stop.WALL: " --budget TIME", Stop.COST: " --max-cost TIME"}
"""What a study that used up its budget must be given to go on."""


def show_result(result: Result, findings: Findings, *, as_json: bool) -> None:
    """The result on standard output: tables for people, one object with `--json`."""
    summary, folder = findings.summary, result.folder
    if as_json:
        files = {"folder": folder.path, "report": folder.page, "journal": folder.journal}
        if findings.handed_over:
            files["best"] = folder.best
        told: dict[str, Any] = report_json(summary, findings.importance, findings.ablation)
        if findings.predictions is not None:
            told["predicted"] = findings.predictions.to_json()
        options.emit(
            {**told, "stop": result.stop.value if result.stop else None, "files": {name: str(path) for name, path in files.items()}}
        )
        return
    options.console.print(render(summary, findings.importance))
    if findings.predictions is not None:
        options.console.print(findings.predictions.sentence, highlight=False, markup=False)
    options.console.print(f"ended: {result.stop.value}" if result.stop else "not finished yet", highlight=False)
    if "run.sh" in findings.handed_over:
        options.console.print(f"run it:  {folder.best / 'run.sh'}", highlight=False, markup=False, soft_wrap=True)
    options.console.print(f"report:  {folder.page}", highlight=False, markup=False, soft_wrap=True)
    if result.stop is not Stop.EXHAUSTED:
        more = MORE.get(result.stop, "") if result.stop else ""
        options.console.print(
            f"go on:   autoscout resume {shlex.quote(str(folder.path))}{more}", highlight=False, markup=False, soft_wrap=True
        )


def exit_code(result: Result, findings: Findings) -> int:
    """0 with an answer, 2 when nothing worked and something must be mended first, 130 when interrupted."""
    if result.stop is Stop.INTERRUPTED:
        return EXIT_INTERRUPTED
    return EXIT_OK if findings.summary.answer is not None else EXIT_BAD_INPUT
