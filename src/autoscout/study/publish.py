"""What a study found: written into its folder, shown in the terminal, told by the exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from autoscout.core.config import Config
from autoscout.core.task import Task
from autoscout.core.trial import Fidelity, Status, Trial
from autoscout.report.ablation import Ablation, ablate
from autoscout.report.breakdown import PART_NAMES, breakdown_svg
from autoscout.report.files import write_file
from autoscout.report.handover import hand_over
from autoscout.report.importance import Importance, knob_importance
from autoscout.report.labels import namer
from autoscout.report.page import page
from autoscout.report.predicted import PredictedTrial, Predictions
from autoscout.report.summary import Summary, summarise
from autoscout.report.tables import report_json, summary_csv, t4
from autoscout.study.assemble import Result, simulator


@dataclass(frozen=True, kw_only=True)
class Findings:
    """A result, read."""

    summary: Summary
    importance: Importance
    ablation: Ablation | None
    predictions: Predictions | None
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
    predicted = _predictions(result, summary)
    told = {**report_json(summary, importance, steps), **({"predicted": predicted.to_json()} if predicted else {})}
    write_file(folder.path / "report.json", json.dumps(told, indent=2) + "\n")
    write_file(folder.path / "t4.json", json.dumps(t4(setup.task, trials)) + "\n")
    commands = [str(folder.best / "run.sh")] if "run.sh" in handed else []
    html = page(
        summary, trials, setup.baseline, knobs=knobs, importance=importance, ablation=steps, commands=commands, predictions=predicted
    )
    write_file(folder.page, html)
    return Findings(summary=summary, importance=importance, ablation=steps, predictions=predicted, handed_over=handed)


def _predictions(result: Result, summary: Summary) -> Predictions | None:
    """What the study's simulator says, or said before measuring, of what was measured; with pictures where it knows the parts."""
    setup = result.setup
    if not setup.simulates:
        return None
    made = simulator(setup)
    cheap = Fidelity.PREDICTED if setup.task.hardware.get("virtual") else Fidelity.SIMULATED
    first: dict[Config, Trial] = {}
    for trial in result.inside:
        if trial.measurement.fidelity > cheap and trial.measurement.status is not Status.ABORTED:
            first.setdefault(trial.config, trial)
    values = made.predict(list(first), setup.task).value.tolist()
    name_of = namer([setup.baseline, *first], tuple(setup.space.knobs.values()))
    rows = [
        PredictedTrial(
            trial=trial.number,
            name=name_of(config),
            predicted=trial.measurement.conditions.get("predicted", value),
            measured=setup.task.objective.value(trial.measurement),
            status=trial.measurement.status.value,
        )
        for (config, trial), value in zip(first.items(), values, strict=True)
    ]
    breakdown: Callable[[Config, Task], dict[str, float]] | None = getattr(made, "breakdown", None)
    chosen = {"default": setup.baseline, **({"answer": summary.answer} if summary.answer not in (None, setup.baseline) else {})}
    pictures = [
        breakdown_svg({PART_NAMES.get(part, part): seconds for part, seconds in breakdown(config, setup.task).items()}, title)
        for title, config in chosen.items()
        if breakdown is not None and config is not None
    ]
    return Predictions(simulator=setup.simulator, metric=setup.task.objective.metric, rows=tuple(rows), pictures=tuple(pictures))
