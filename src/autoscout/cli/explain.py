"""`autoscout explain`: why the search went where it went."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autoscout.analysis.importance import knob_importance
from autoscout.analysis.labels import show_spent
from autoscout.analysis.lineage import Branch, Lineage, lineage, role_of
from autoscout.analysis.predicted import Predictions
from autoscout.cli import complete, options
from autoscout.core.errors import ConfigError, Fault, StoreError
from autoscout.core.journal import read_trials
from autoscout.core.reading import only_reading
from autoscout.core.trial import Trial
from autoscout.report.publish import compare_predictions
from autoscout.study.assemble import look
from autoscout.study.folder import Folder
from autoscout.study.outcome import Outcome
from autoscout.study.setup import Setup, prepare
from autoscout.study.start import PRIOR, StartingPoint


@only_reading()
def explain(
    folder: Annotated[Path, typer.Argument(autocompletion=complete.folders, help="A result folder.")],
    trial: Annotated[int | None, typer.Option("--trial", help="Only this trial: what it was and why it was proposed.")] = None,
    depth: Annotated[int, typer.Option("--depth", min=0, max=12, help="Levels of the tree.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Who proposed what, the steps by which the best was found, and the tree of what was tried."""
    home = Folder(folder)
    home.spec()
    trials = read_trials(home.journal)
    if trial is not None:
        _one(trials, trial, as_json)
        return
    setup = prepare(options.load(str(home.campaign)))
    start = StartingPoint.recorded(setup, home)
    outcome = _stored(setup, home)
    predictions = compare_predictions(outcome) if outcome is not None and start.use else None
    distribution = outcome.result.distribution if outcome is not None else None
    shares = [share.name for share in knob_importance(setup.task, trials).knobs]
    names = [*shares, *(name for name in setup.space.knobs if name not in shares)]
    story = lineage(setup.task, trials, names, depth)
    if as_json:
        informed = start.simulator if start.use == PRIOR else ""
        members = [vars(member) for member in predictions.members] if predictions else []
        past = [study.study for study in start.past]
        more = {"simulators": members} if members else {}
        spread = distribution.to_json() if distribution else None
        options.emit({**story.to_json(), "distribution": spread, "informed_by": informed, "learnt_from": past, **more})
        return
    head = "".join(f"{sentence}.\n" for sentence in start.describe()) + _simulators(predictions)
    tail = f"\n\n{distribution.sentence}.\n{distribution.caveat}" if distribution else ""
    options.say(head + _text(story, setup.task.objective.metric) + tail)


def _stored(setup: Setup, home: Folder) -> Outcome | None:
    """The study as its store has it; None where the store is gone, since `trials.jsonl` tells the story, too."""
    try:
        return look(setup, home)
    except StoreError:
        return None


def _simulators(predictions: Predictions | None) -> str:
    """How several simulators were weighed, and what came of it."""
    if predictions is None or not predictions.members:
        return ""
    rows = [f"{name:36.36s}  {weight:>6s}  {error:>6s}  {r2:>6s}  {rank:>6s}" for name, weight, error, r2, rank in predictions.cells]
    return "\n".join([f"{'simulator':36s}  weight   error      R²    rank", *rows, f"{predictions.sentence}.", "", ""])


def _one(trials: list[Trial], number: int, as_json: bool) -> None:
    chosen = next((trial for trial in trials if trial.number == number), None)
    if chosen is None:
        rule = f"trials run from 0 to {max((trial.number for trial in trials), default=-1)}"
        raise ConfigError(Fault(where="--trial", value=str(number), rule=f"no such trial; {rule}"))
    if as_json:
        options.emit(chosen.to_json())
        return
    answer = chosen.measurement
    options.say(f"#{number} proposed by {role_of(chosen)}: {answer.status.value} {dict(answer.metrics)}")
    for name, text in (("reason", answer.reason), ("at best", answer.bounds and dict(answer.bounds)), ("spent", show_spent(answer))):
        if text:
            options.say(f"{name}: {text}")
    options.say("config: " + ", ".join(f"{name}={value}" for name, value in chosen.config.items()))
    options.say("origin: " + ", ".join(f"{name}={value}" for name, value in chosen.proposal.origin.to_json().items()))


def _text(story: Lineage, metric: str) -> str:
    lines = ["who proposed                          proposals  failed  new bests  best"]
    for role in story.roles:
        best = "-" if role.best is None else f"{role.best:g}"
        lines.append(f"{role.name:36.36s}  {role.proposals:9d}  {role.failed:6d}  {role.improved:9d}  {best}")
    lines += ["", f"how the best {metric} was found"]
    for step in story.advances:
        changes = ", ".join(f"{name} {before} -> {after}" for name, (before, after) in step.changed.items()) or "the first"
        why = {"by": step.origin.by, **step.origin.notes}
        lines.append(f"#{step.number:<4d} {step.value:g}  {changes}  [{', '.join(f'{k}={v}' for k, v in list(why.items())[:4])}]")
    lines += ["", "what was tried (trials, failures, best)"]
    return "\n".join([*lines, *_branches(story.tree, "")])


def _branches(branch: Branch, indent: str) -> list[str]:
    best = "-" if branch.best is None else f"{branch.best:g}"
    lines = [f"{indent}{branch.label}: {branch.trials}, {branch.failed}, {best}"]
    for child in branch.children:
        lines += _branches(child, indent + "  ")
    return lines
