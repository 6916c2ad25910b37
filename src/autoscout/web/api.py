"""Every page as JSON: the same facts, for programs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from autoscout.analysis.labels import differences, short_worker
from autoscout.analysis.price import mark
from autoscout.core.secrecy import hide_secrets
from autoscout.core.trial import Trial
from autoscout.report.tables import report_json
from autoscout.web.library import Library, StudyEntry
from autoscout.web.live import LiveView
from autoscout.web.studies import StudyQuery
from autoscout.web.trials import TrialList, TrialQuery, list_trials


def finite(value: Any) -> Any:
    """The same with null in the index of numbers that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value


def studies_document(library: Library, query: StudyQuery) -> dict[str, Any]:
    """The studies that are looked for, the newest first."""
    rows = [row for entry in library.entries() if query.matches(row := entry_row(entry))]
    return {"target": library.title, "problems": list(library.problems), "studies": rows}


def entry_row(entry: StudyEntry) -> dict[str, Any]:
    """One study in a list: what its record says, and what was found where somebody has worked it out."""
    record, view = entry.record, entry.loaded
    row: dict[str, Any] = {
        "key": entry.key,
        "name": record.name,
        **entry.description.to_json(),
        "title": entry.title,
        "state": entry.state.value,
        "system": record.task.system,
        "metric": record.task.objective.metric,
        "direction": record.task.objective.direction.value,
        "created_s": record.created_s,
        "trials": len(view.trials) if view else max(0, entry.pulse.trials),
        "running": len(entry.pulse.workers),
    }
    if view is None:
        return row
    if not view.valid_trials:
        return row  # there is no verdict yet
    summary = view.summary
    return row | {
        "verdict": summary.verdict.value,
        "headline": summary.headline,
        "gain": summary.gain.to_json(),
        "best": summary.best.value if summary.best else None,
        "best_name": summary.best.name if summary.best else None,
        "default": summary.default.value if summary.default else None,
        "baseline": summary.baseline.value if summary.baseline else None,
        "failed": sum(len(group.trials) for group in summary.failures),
        "simulated": summary.fidelity.label == "simulated",
        "spent_s": summary.spent.wall_s,
        "used": view.used,
    }


def study_document(entry: StudyEntry, view: LiveView) -> dict[str, Any]:
    """One study: everything that its page says except what is asked for separately."""
    return {
        "key": entry.key,
        **entry.description.to_json(),
        "title": entry.title,
        "state": entry.state.value,
        "budget": {name: value for name, value in vars(view.budget).items() if value is not None},
        "searched": view.searched,
        "used": view.used,
        "workers": [short_worker(worker) for worker in view.pulse.workers],
        "actions": [action.to_json() for action in view.actions],
        "invalid": {str(number): reason for number, reason in view.invalid.items()},
        "about": view.about.to_json(),
        "result": report_json(view.result) if view.valid_trials else None,
        "predicted": view.predictions.to_json() if view.predictions else None,
    }


def trials_document(view: LiveView, query: TrialQuery) -> dict[str, Any]:
    """A page of the list of trials."""
    listing: TrialList = list_trials(view, query)
    rows = [{**trial.to_json(), "name": view.name_of(trial.config), "valid": trial.number not in view.invalid} for trial in listing.trials]
    for row in rows:
        row.pop("log_tail", None)  # on the trial's own page
        row.pop("samples", None)
    return {"found": listing.count, "page": listing.page, "pages": listing.pages, "trials": rows}


def trial_document(view: LiveView, trial: Trial) -> dict[str, Any]:
    """One trial, with what it changes and the files that its launch left."""
    changes = [change.to_json() for change in differences(view.result.reference, trial.config, view.about.knobs)]
    files = view.folder.launch_files(trial.measurement.folder) if view.folder else []
    return {
        **trial.to_json(),
        "log_tail": hide_secrets(trial.measurement.log_tail, view.secrets),
        "name": view.name_of(trial.config),
        "valid": trial.number not in view.invalid,
        "changes": changes,
        "files": [path.name for path in files],
    }


def diff_document(view: LiveView, one: Trial, other: Trial) -> dict[str, Any]:
    """Two trials next to each other."""
    objective = view.summary.task.objective
    metrics = {}
    for name in sorted({*one.measurement.metrics, *other.measurement.metrics}):
        before, after = one.measurement.metrics.get(name), other.measurement.metrics.get(name)
        metrics[name] = {
            "one": before,
            "other": after,
            "change": after / before - 1.0 if before and after is not None else None,
            "mark": mark(name, before, after, objective),
        }
    knobs = [
        {
            "knob": change.knob,
            "one": None if change.default_absent else change.default,
            "other": None if change.best_absent else change.best,
        }
        for change in differences(one.config, other.config, view.about.knobs)
    ]
    same = len({*one.config, *other.config}) - len(knobs)
    statuses = {"one": one.measurement.status.value, "other": other.measurement.status.value}
    return {"one": one.number, "other": other.number, "status": statuses, "knobs": knobs, "same_knobs": same, "metrics": metrics}


def knob_document(view: LiveView, knob: str) -> dict[str, Any]:
    """What was measured along one knob: value -> number of trials, best and median."""
    task = view.summary.task
    gathered: dict[str, tuple[Any, list[float]]] = {}
    for trial in view.valid_trials:
        value = task.objective.value(trial.measurement)
        if knob in trial.config and value is not None:
            gathered.setdefault(repr(trial.config[knob]), (trial.config[knob], []))[1].append(value)
    rows = []
    for setting, values in gathered.values():
        ranked = sorted(values)
        best = ranked[0] if task.objective.better(ranked[0], ranked[-1]) else ranked[-1]
        rows.append({"value": setting, "trials": len(ranked), "median": ranked[len(ranked) // 2], "best": best})
    return {"knob": knob, "metric": task.objective.metric, "values": rows, "knobs": view.result.varied}


def compare_document(entries: Sequence[StudyEntry]) -> dict[str, Any]:
    """Several studies next to each other."""
    rows = []
    for entry in entries:
        view = entry.view()
        curve = [{"number": point.number, "best": point.best, "spent_s": point.spent_s} for point in view.summary.points if point.improved]
        rows.append({**entry_row(entry), "curve": curve})
    return {"studies": rows}


__all__ = [
    "compare_document",
    "diff_document",
    "entry_row",
    "finite",
    "knob_document",
    "studies_document",
    "study_document",
    "trial_document",
    "trials_document",
]
