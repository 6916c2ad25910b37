"""The result of a study in the terminal, as JSON, and as an exit code."""

from __future__ import annotations

import shlex

from autoscout.cli import options
from autoscout.core.errors import EXIT_BAD_INPUT, EXIT_INTERRUPTED, EXIT_OK, StoreError
from autoscout.report.publish import compare_predictions, facts, publish
from autoscout.report.text import render
from autoscout.study.budget import Stop
from autoscout.study.outcome import Outcome

MORE = {Stop.TRIALS: " --max-trials N", Stop.WALL: " --budget TIME", Stop.COST: " --max-cost TIME", Stop.STALE: " --patience N"}
"""What a study that used up its budget must be given to be resumed."""


def publish_and_show(outcome: Outcome, *, as_json: bool) -> bool:
    """Write the files of a study and show its result, which is shown also where they cannot be written; returns whether they were."""
    try:
        outcome, unwritten = publish(outcome), None
    except StoreError as error:
        unwritten = error
    show_outcome(outcome, as_json=as_json)
    for fault in unwritten.faults if unwritten else ():
        options.errors.print(f"autoscout: {fault}", style="red", markup=False, highlight=False, soft_wrap=True)
    return unwritten is None


def show_outcome(outcome: Outcome, *, as_json: bool) -> None:
    """The result on standard output: tables for people, one object with `--json`."""
    summary, folder = outcome.summary, outcome.folder
    assert folder is not None  # every study of the command line has one
    predicted = compare_predictions(outcome)
    if as_json:
        files = {"folder": folder.path, "report": folder.page, "journal": folder.journal}
        if outcome.handed_over:
            files["best"] = folder.best
        if summary.front:
            files["front"] = folder.front
        end = {"stop": outcome.stop.value if outcome.stop else None, "ended": outcome.ended}
        options.emit({**facts(outcome, predicted), **end, "files": {name: str(path) for name, path in files.items()}})
        return
    options.console.print(render(summary, outcome.importance, outcome.contributions))
    lines = [predicted.sentence] if predicted is not None else []
    lines += [outcome.unseen.sentence] if outcome.unseen is not None else []
    lines.append(f"ended: {outcome.ended}" if outcome.stop else "not finished yet")
    if "run.sh" in outcome.handed_over:
        lines.append(f"run it:  {folder.best / 'run.sh'}")
    if summary.front:
        lines.append(f"front:   {folder.front}/: {', '.join(point.name for point in summary.front.handed_over)}")
    if folder.page.exists():
        lines.append(f"report:  {folder.page}")
    if outcome.stop is not Stop.EXHAUSTED:
        more = MORE.get(outcome.stop, "") if outcome.stop else ""
        more = summary.next.flags if summary.next else more
        lines.append(f"resume:  autoscout resume {shlex.quote(str(folder.path))}{more}")
    for line in lines:
        options.console.print(line, highlight=False, markup=False, soft_wrap=True)


def exit_code(outcome: Outcome) -> int:
    """0 with an answer, 2 when nothing worked and something must be fixed first, 130 when interrupted."""
    if outcome.stop is Stop.INTERRUPTED:
        return EXIT_INTERRUPTED
    return EXIT_OK if outcome.summary.answer is not None else EXIT_BAD_INPUT
