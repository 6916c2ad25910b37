"""Trials for other programs: `summary.csv` for spreadsheets and notebooks, JSON, and T4 for auto-tuning researchers.

T4 is the results format that Kernel Tuner writes and the auto-tuning methodology tools read (schema version 1.0.0).
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from itertools import repeat
from typing import Any

from autoscout.analysis.curves import ordered
from autoscout.analysis.labels import KnobNote, namer, one_line
from autoscout.analysis.result import StudyResult
from autoscout.analysis.summary import is_dirty
from autoscout.core.config import Config, Value
from autoscout.core.task import Task
from autoscout.core.trial import SPENT, Fidelity, Status, Trial

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what begins with one of these is a formula to a spreadsheet
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")

T4_VERSION = "1.0.0"

_INVALIDITY = {
    Status.OK: "correct",
    Status.OOM_START: "runtime",
    Status.OOM_RUN: "runtime",
    Status.TIMEOUT: "timeout",
    Status.CRASHED: "runtime",
    Status.INVALID: "constraints",
    Status.WRONG_OUTPUT: "correctness",
}
_UNITS = {"ms": "ms", "s": "s", "us": "us", "gib": "GiB", "gb": "GB", "mb": "MB", "mib": "MiB"}


_ORIGINS = json.JSONEncoder(sort_keys=True, default=str)


def summary_csv(task: Task, trials: Sequence[Trial], knobs: Iterable[KnobNote] = (), name_of: Callable[[Config], str] | None = None) -> str:
    """`summary.csv`: one row per trial, knobs as `knob.NAME`, metrics as `metric.NAME`, what bounded trials could reach as `bound.NAME`."""
    rows = ordered(trials)
    declared = list(knobs)
    name_of = name_of or namer(rows[0].config if rows else Config(), declared)  # the default is measured first
    used = {name for trial in rows for name in trial.config}
    names = [knob.name for knob in declared if knob.name in used]
    names += sorted(used - set(names))
    metrics = sorted({name for trial in rows for name in trial.measurement.metrics} - {task.objective.metric})
    metrics.insert(0, task.objective.metric)
    fixed = ["number", "name", "key", "status", "fidelity", "phase", "repeat", "keeps_limits"]
    bounds = sorted({name for trial in rows for name in trial.measurement.bounds})
    tail = [*(f"bound.{name}" for name in bounds), "cost_s", *SPENT, "started_s", "finished_s", "worker", "dirty", "origin", "reason"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*fixed, *(f"metric.{name}" for name in metrics), *(f"knob.{name}" for name in names), *tail])
    for trial in rows:
        answer = trial.measurement
        writer.writerow(
            [
                trial.number,
                _harmless(name_of(trial.config)),
                trial.config.key,
                answer.status.value,
                answer.fidelity.label,
                trial.proposal.origin.phase.value,
                trial.proposal.repeat,
                _flag(task.objective.loss(answer) != float("inf")),
                *("" if answer.bounds else answer.metrics.get(name, "") for name in metrics),  # numbers of a part are no results
                *map(_cell, map(trial.config.to_json().get, names, repeat(_INACTIVE))),
                *(answer.bounds.get(name, "") for name in bounds),
                answer.cost_s,
                *(answer.spent.get(name, "") for name in SPENT),
                trial.started_s,
                trial.finished_s,
                _harmless(trial.worker),
                _flag(is_dirty(trial)),
                _ORIGINS.encode(trial.proposal.origin.to_json()),
                _harmless(one_line(answer.reason, 500)),
            ]
        )
    return text.getvalue()


class _Inactive:
    """What a configuration holds of a knob that it does not have."""


_INACTIVE = _Inactive()


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _cell(value: Value | _Inactive) -> str | int | float:
    """An inactive knob is empty; a knob that holds nothing reads `null`, as in YAML."""
    if value.__class__ is int:
        return value
    if isinstance(value, _Inactive):
        return ""
    if value is None:
        return "null"
    return _flag(value) if isinstance(value, bool) else _harmless(value) if isinstance(value, str) else value


def _harmless(text: str) -> str:
    """The text, with a quote before what a spreadsheet would run as a formula; a number stays one."""
    return f"'{text}" if text[:1] in _FORMULA and not _NUMBER.fullmatch(text) else text


def report_json(result: StudyResult) -> dict[str, Any]:
    """Everything the page shows except the trials, as JSON."""
    learning = {"learning": result.learning.to_json()} if result.learning is not None else {}
    return {
        **result.summary.to_json(),
        **learning,
        "importance": result.importance.to_json(),
        "distribution": result.distribution.to_json() if result.distribution else None,
        "ablation": result.ablation.to_json() if result.ablation else None,
        "contributions": [contribution.to_json() for contribution in result.contributions],
    }


def t4(task: Task, trials: Sequence[Trial]) -> dict[str, Any]:
    """The trials of the highest fidelity present, in T4; times in milliseconds as Kernel Tuner writes them."""
    rows = [trial for trial in ordered(trials) if trial.measurement.status in _INVALIDITY]
    fidelity = max((trial.measurement.fidelity for trial in rows), default=Fidelity.MEASURED)
    results = [_t4_result(task, trial) for trial in rows if trial.measurement.fidelity is fidelity]
    return {"results": results, "schema_version": T4_VERSION}


def _t4_result(task: Task, trial: Trial) -> dict[str, Any]:
    answer = trial.measurement
    metric = task.objective.metric
    unit = unit_of(metric)
    samples = answer.samples.get(metric, (answer.metrics[metric],) if metric in answer.metrics else ())
    factor = {"ms": 1.0, "s": 1000.0, "us": 0.001}.get(unit)
    return {
        "timestamp": datetime.fromtimestamp(trial.finished_s, tz=UTC).isoformat(),
        "configuration": trial.config.to_json(),
        "times": {
            "compilation": 0,
            "benchmark": answer.cost_s * 1000.0,
            "framework": 0,
            "search_algorithm": 0,
            "validation": 0,
            "runtimes": [value * factor for value in samples] if factor else [],
        },
        "invalidity": _INVALIDITY[answer.status],
        "correctness": 1 if answer.ok else 0,
        "measurements": [{"name": name, "value": value, "unit": unit_of(name)} for name, value in sorted(answer.metrics.items())],
        "objectives": [metric],
    }


def unit_of(metric: str) -> str:
    """The unit that a metric's name ends in; empty where it ends in none."""
    return _UNITS.get(metric.rpartition("_")[2].lower(), "") if "_" in metric else ""
