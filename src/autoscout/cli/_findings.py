"""What a study found: written into its folder, shown in the terminal, told by the exit code."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import Any

from autoscout.cli import _options as options
from autoscout.compose import Result
from autoscout.core.errors import EXIT_BAD_INPUT, EXIT_INTERRUPTED, EXIT_OK
from autoscout.report.ablation import Ablation, ablate
from autoscout.report.files import write_file
from autoscout.report.handover import hand_over
from autoscout.report.importance import Importance, knob_importance
from autoscout.report.page import page
from autoscout.report.summary import Summary, summarise
from autoscout.report.tables import report_json, summary_csv, t4
from autoscout.report.text import render
from autoscout.spending import Stop

MORE = {Stop.TRIALS: " --max-trials N", Stop.WALL: " --budget TIME", Stop.COST: " --max-cost TIME"}
"""What a study that used up its budget must be given to go on."""


@dataclass(frozen=True, kw_only=True)
class Findings:
    """A result, read."""

    summary: Summary
    importance: Importance
    ablation: Ablation | None
    handed_over: tuple[str, ...]


def write_findings(result: Result) -> Findings:
    """Write summary.csv, report.html, report.json, t4.json and best/ into the result folder."""
    setup, folder, trials = result.setup, result.folder, result.inside
    knobs = tuple(setup.space.knobs.values())
    summary = summarise(setup.task, trials, setup.baseline, knobs=knobs, study=setup.name)
    importance = knob_importance(setup.task, trials)
    steps = ablate(setup.task, trials, setup.baseline, summary.best.config, check=setup.space.check) if summary.best else None
    handed: tuple[str, ...] = ()
    if summary.answer is not None:
        files = setup.backend.export(summary.answer, setup.task)
        variables = setup.backend.render(summary.answer, setup.task, setup.campaign.search.seed).env
        handed = hand_over(folder.best, summary, files, setup.baseline, knobs=knobs, variables=variables)
    write_file(folder.path / "summary.csv", summary_csv(setup.task, result.trials, knobs))
    write_file(folder.path / "report.json", json.dumps(report_json(summary, importance, steps), indent=2) + "\n")
    write_file(folder.path / "t4.json", json.dumps(t4(setup.task, trials)) + "\n")
    commands = [str(folder.best / "run.sh")] if "run.sh" in handed else []
    html = page(summary, trials, setup.baseline, knobs=knobs, importance=importance, ablation=steps, commands=commands)
    write_file(folder.page, html)
    return Findings(summary=summary, importance=importance, ablation=steps, handed_over=handed)


def show_result(result: Result, findings: Findings, *, as_json: bool) -> None:
    """The result on standard output: tables for people, one object with `--json`."""
    summary, folder = findings.summary, result.folder
    if as_json:
        files = {"folder": folder.path, "report": folder.page, "journal": folder.journal}
        if findings.handed_over:
            files["best"] = folder.best
        told: dict[str, Any] = report_json(summary, findings.importance, findings.ablation)
        options.emit(
            {**told, "stop": result.stop.value if result.stop else None, "files": {name: str(path) for name, path in files.items()}}
        )
        return
    options.console.print(render(summary, findings.importance))
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
