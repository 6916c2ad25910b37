"""Writes what a study found: report, tables and hand-over. The only place that does, whoever ran the study."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from autoscout.analysis.labels import PART_NAMES
from autoscout.analysis.predicted import PredictedTrial, Predictions
from autoscout.catalog.own_studies import FILE, fit_local
from autoscout.common import document
from autoscout.common.files import write_file
from autoscout.core import plugins
from autoscout.core.config import Config, Value
from autoscout.core.errors import ConfigError
from autoscout.core.secrecy import hide_secrets, without_secrets
from autoscout.core.trial import Fidelity, Status, Trial
from autoscout.evaluate.predicting import PREDICTED
from autoscout.evaluate.profile import as_measured, profile_of
from autoscout.report.breakdown import breakdown_svg
from autoscout.report.exported import export, private_values, shown_line, without_secret_variables
from autoscout.report.front_files import hand_over_front
from autoscout.report.handover import hand_over
from autoscout.report.page import page
from autoscout.report.tables import report_json, summary_csv, t4
from autoscout.report.view import StudyView
from autoscout.study.assemble import build_simulator
from autoscout.study.folder import Folder
from autoscout.study.outcome import Outcome
from autoscout.study.start import ADAPTIVE, find_simulator


def publish(outcome: Outcome) -> Outcome:
    """Write summary.csv, report.html, report.json, t4.json, best/ and, with several goals, front/ and front.json into the study's folder;
    and calibration.json where a simulator understands the task.

    Nothing is written for a study without one.

    Returns:
        The outcome with the names of the files in best/.
    """
    folder = outcome.folder
    if folder is None:
        return outcome
    setup, summary, knobs = outcome.setup, outcome.summary, tuple(outcome.setup.space.knobs.values())
    handed = _hand_over(outcome, folder)
    _hand_over_front(outcome, folder)
    predicted = compare_predictions(outcome)
    write_file(folder.path / "summary.csv", hide_secrets(summary_csv(summary.task, outcome.trials, knobs, outcome.result.name_of)))
    write_file(folder.path / "report.json", _json(facts(outcome, predicted), indent=2))
    write_file(folder.path / "t4.json", _json(t4(setup.task, outcome.inside)))
    view = StudyView(
        result=outcome.result,
        commands=[str(folder.best / "run.sh")] if "run.sh" in handed else [],
        starts=start_lines(outcome, folder),
        machine=outcome.machine,
        links=log_links(outcome.inside, folder),
        predictions=predicted,
        unseen=outcome.unseen,
    )
    write_file(folder.page, page(view))
    _feed_calibration(outcome, folder)
    return outcome.having(handed_over=handed)


def _json(data: Any, indent: int | None = None) -> str:
    return json.dumps(without_secrets(data), indent=indent) + "\n"


def _feed_calibration(outcome: Outcome, folder: Folder) -> None:
    """Keep what the measured trials say of the simulator that understands the task, for later estimates."""
    setup = outcome.setup
    if setup.fidelity is not Fidelity.MEASURED:
        return
    named = outcome.start.names(setup)
    able = [name for name in named if plugins.get("simulator", name).needs_no_trials]
    name = able[0] if able else "" if named else find_simulator(setup.space, setup.task)
    if not name:
        return
    kind = plugins.get("simulator", name)
    calibration = fit_local(name, kind(), outcome.inside, setup.task, setup.name)
    if calibration is not None:
        write_file(folder.path / FILE, calibration.to_json())


def start_lines(outcome: Outcome, folder: Folder) -> dict[str, str]:
    """The command lines that start the system with the references and with the best configuration; nothing where it is a Python call.

    They run as they are, in the folder in which the study was started: a launch that needs files of its own is measured once instead.
    """
    setup, best = outcome.setup, outcome.summary.best
    named = {name: config for config, name in setup.references.titles.items()}
    chosen = {**named, **({outcome.summary.contender: best.config} if best and best.config not in named.values() else {})}
    lines = {}
    for title, config in chosen.items():
        launch = setup.backend.render(config, setup.task, setup.campaign.search.seed)
        if words := setup.backend.serve(config, setup.task):
            lines[title] = shlex.join(words)
        elif launch.files:
            settings = [word for name, value in config.items() for word in ("--set", f"{name}={_written(value)}")]
            lines[title] = shlex.join(["autoscout", "profile", str(folder.campaign), *settings])
        elif launch.call is None:
            lines[title] = shown_line(launch, setup.task).replace("{folder}", ".")  # where it is started by hand
    return {title: hide_secrets(line) for title, line in lines.items()}


def _written(value: Value) -> str:
    """A value as `--set` reads it: words that YAML takes for something else are quoted."""
    if not isinstance(value, str):
        return json.dumps(value)
    try:
        return value if document.compose(value, "--set").value == value else json.dumps(value)
    except ConfigError:  # `--set` takes what is not YAML as it is
        return value


def log_links(trials: Iterable[Trial], folder: Folder) -> dict[int, str]:
    """Where the logs of the trials that did not work lie, relative to the result folder, by number of the trial."""
    links = {}
    for trial in trials:
        if not trial.ok and (logs := folder.launch_files(trial.measurement.folder)):
            links[trial.number] = quote(str(logs[0].relative_to(folder.path)))
    return links


def facts(outcome: Outcome, predicted: Predictions | None) -> dict[str, Any]:
    """Everything a report says, as JSON."""
    machine = {"machine": dict(outcome.machine)} if outcome.machine else {}
    simulated = {"predicted": predicted, "unseen_windows": outcome.unseen}
    return {**report_json(outcome.result), **machine, **{name: part.to_json() for name, part in simulated.items() if part}}


def compare_predictions(outcome: Outcome) -> Predictions | None:
    """What the study's simulator says of what was measured; with pictures where it knows the parts. None without a simulator."""
    setup, start, summary = outcome.setup, outcome.start, outcome.summary
    if not start.use:
        return None
    first: dict[Config, Trial] = {}
    for trial in outcome.inside:
        if trial.measurement.fidelity >= setup.fidelity and trial.measurement.status is not Status.ABORTED:
            first.setdefault(trial.config, trial)
    learning = start.use == ADAPTIVE and setup.campaign.simulate.adaptive.get("learn", True)
    simulator = build_simulator(setup, start, as_measured(first.values()) if learning else profile_of(outcome.inside))
    if not all(plugins.get("simulator", name).needs_no_trials for name in start.names(setup)):  # what they say afterwards is no prediction
        first = {config: trial for config, trial in first.items() if PREDICTED in trial.measurement.conditions}
    values = simulator.predict(list(first), setup.task).value.tolist()
    rows = [
        PredictedTrial(
            trial=trial.number,
            name=outcome.result.name_of(config),
            predicted=trial.measurement.conditions.get(PREDICTED, value),
            measured=setup.task.objective.value(trial.measurement),
            status=trial.measurement.status.value,
        )
        for (config, trial), value in zip(first.items(), values, strict=True)
    ]
    chosen = {"default": setup.default, **({} if summary.answer in (None, setup.default) else {"answer": summary.answer})}
    pictures = [
        breakdown_svg({PART_NAMES.get(part, part): part_s for part, part_s in parts.items()}, title)
        for title, config in chosen.items()
        if config is not None and (parts := simulator.breakdown(config, setup.task))
    ]
    return Predictions(
        simulator=start.simulator,
        metric=setup.task.objective.metric,
        rows=tuple(rows),
        pictures=tuple(pictures),
        members=simulator.standings if len(simulator.standings) > 1 else (),
    )


def _hand_over_front(outcome: Outcome, folder: Folder) -> None:
    setup, summary, front = outcome.setup, outcome.summary, outcome.summary.front
    if front is None:
        return
    seed = setup.campaign.search.seed
    open_task, _ = without_secret_variables(setup.task)
    exported = {
        point.config: (export(setup.backend, point.config, setup.task), setup.backend.render(point.config, open_task, seed).env)
        for point in front.handed_over
    }
    private = private_values(setup.task)
    hand_over_front(folder.front, summary, front, exported, outcome.result.reference, tuple(setup.space.knobs.values()), private)
    write_file(folder.path / "front.json", _json(front.to_json(), indent=2))


def _hand_over(outcome: Outcome, folder: Folder) -> tuple[str, ...]:
    setup, summary = outcome.setup, outcome.summary
    if summary.answer is None:
        return ()
    files: Mapping[str, str] = export(setup.backend, summary.answer, setup.task)
    open_task, secrets = without_secret_variables(setup.task)
    variables = setup.backend.render(summary.answer, open_task, setup.campaign.search.seed).env
    learning = outcome.result.learning
    if learning is not None and summary.best is not None and summary.best.config == summary.answer:
        files = {**files, "learning.csv": learning.to_csv()}
    knobs = tuple(setup.space.knobs.values())
    worth = outcome.contributions if summary.best is not None and summary.best.config == summary.answer else ()
    return hand_over(
        folder.best,
        summary,
        files,
        setup.default,
        knobs=knobs,
        variables=variables,
        contributions=worth,
        baseline=setup.baseline,
        secrets=secrets,
        private=private_values(setup.task),
    )
