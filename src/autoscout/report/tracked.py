"""A study as trackers are shown it: from its record, its trials and its result folder, without secrets and values of variables."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from autoscout.common.templates import flatten
from autoscout.core.config import Value
from autoscout.core.guards import bind
from autoscout.core.origin import Phase
from autoscout.core.protocols import StudyRecord
from autoscout.core.secrecy import hide_secrets, hide_variables, known_secrets, without_secrets
from autoscout.core.state import State
from autoscout.core.task import Objective, Task
from autoscout.core.tracker import NAME_CHARS, TEXT_CHARS, TrackedKnob, TrackedResult, TrackedStudy, TrackedTrial
from autoscout.core.trial import Measurement, Trial
from autoscout.report.exported import refer_to_values
from autoscout.study.about import About
from autoscout.study.campaign import Campaign

LEFT_OUT = frozenset({"name", "store", "space", "track", "system"})
"""Blocks of a campaign that are no settings of its study, or stand elsewhere."""
FILES = ("report.html", "report.json", "summary.csv", "t4.json", "front.json")
FOLDERS = ("best", "front")
FILE_BYTES = 20_000_000
VERDICT = ("verdict", "reason", "headline", "against")


def tracked_study(record: StudyRecord) -> TrackedStudy:
    """The study of a record."""
    about = About.from_record(record)
    blocks = {name: block for name, block in record.spec.items() if name in Campaign.model_fields and name not in LEFT_OUT}
    settings = _without_variables(without_secrets({**blocks, "machine": about.machine, "load": about.load}))
    identity = f"{record.name}|{record.created_s!r}|{record.task.key}"
    return TrackedStudy(
        name=record.name,
        key=hashlib.sha256(identity.encode()).hexdigest()[:12],
        system=record.task.system,
        goals=record.task.objective.goals,
        settings={"system": record.task.system, **_scalars(settings)},
        knobs={knob.name: TrackedKnob(values=knob.values, ends=knob.ends, log=knob.log) for knob in about.knobs},
        space=hide_secrets(about.space),
        task=json.dumps(_without_variables(without_secrets(record.task.to_json()))),
        begun_s=record.created_s,
    )


def tracked_trials(record: StudyRecord, trials: Sequence[Trial], first: int = 0) -> Iterator[TrackedTrial]:
    """The trials from a number on; earlier ones say what the best was before."""
    default = About.from_record(record).default_config(trials)
    objective = bind(record.task, trials, default).objective
    secrets = known_secrets(_variables(record.task))
    best: dict[str, float] = {}
    for trial in trials:
        if math.isfinite(objective.loss(trial.measurement)):
            for goal in objective.goals:
                value = trial.measurement.metrics[goal.metric]
                before = best.get(goal.metric, value)
                best[goal.metric] = value if goal.sign * value < goal.sign * before else before
        if trial.number >= first:
            yield _tracked_trial(trial, objective, dict(best), secrets)


def tracked_result(record: StudyRecord, trials: Sequence[Trial], state: State, folder: Path) -> TrackedResult:
    """What came of a study: its report, where one was written, and the files next to it."""
    facts: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        facts = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    gain, spent = facts.get("gain") or {}, facts.get("spent") or {}
    numbers = {"gain": gain.get("ratio"), "gain_low": gain.get("low"), "gain_high": gain.get("high")}
    for which in ("default", "baseline", "best"):
        of_it = facts.get(which) or {}
        numbers |= {f"{which}/{name}": value for name, value in (of_it.get("metrics") or {}).items()}
    for part in facts.get("contributions") or ():
        numbers[f"contribution/{part.get('knob')}"] = part.get("ratio")
    numbers |= {"trials": len(trials), "configurations": spent.get("configs"), "cost_s": spent.get("cost_s")}
    answer = {f"answer.{name}": value for name, value in (facts.get("answer") or {}).items()}
    return TrackedResult(
        state=state,
        metrics={name: float(value) for name, value in numbers.items() if isinstance(value, (int, float)) and math.isfinite(value)},
        notes=_scalars(without_secrets({**{name: facts[name] for name in VERDICT if facts.get(name)}, **answer})),
        files=dict(_files(folder, record.task)),
        ended_s=trials[-1].finished_s if trials else record.created_s,
    )


def _tracked_trial(trial: Trial, objective: Objective, best: Mapping[str, float], secrets: Sequence[str]) -> TrackedTrial:
    answer, origin = trial.measurement, trial.proposal.origin
    goals = {goal.metric: answer.metrics[goal.metric] for goal in objective.goals if answer.ok and goal.metric in answer.metrics}
    phase = "" if origin.phase is Phase.SEARCH else origin.phase.value
    notes = {
        "by": str(origin.by),
        "phase": phase,
        "round": origin.round or "",
        "repeat": trial.proposal.repeat or "",
        "fidelity": answer.fidelity.label,
        "reason": hide_secrets(answer.reason, secrets),
        "cost_s": answer.cost_s,
        "disturbed": answer.is_disturbed or "",
        "machine": answer.machine,
    }
    return TrackedTrial(
        number=trial.number,
        name=" ".join(word for word in (f"#{trial.number}", phase or str(origin.by)) if word),
        config=_scalars(without_secrets(trial.config.to_json())),
        status=answer.status,
        metrics=dict(answer.metrics),
        goals=goals if len(goals) == len(objective.goals) else {},
        best=best,
        samples={name: values for name, values in answer.samples.items() if all(map(math.isfinite, values))},
        violations=_violations(objective, answer),
        notes={name: value for name, value in notes.items() if value != ""},
        begun_s=trial.started_s,
        ended_s=trial.finished_s,
    )


def _violations(objective: Objective, answer: Measurement) -> dict[str, float]:
    """How far each limit is broken, in the metric's own unit."""
    violations = {}
    for limit in objective.limits:
        value = answer.metrics.get(limit.metric) if answer.ok else None
        if value is not None:
            violations[str(limit)] = value - limit.value if limit.op.startswith("<") else limit.value - value
    return violations


def _files(folder: Path, task: Task) -> Iterator[tuple[str, str]]:
    secrets = known_secrets(_variables(task))
    paths = [folder / name for name in FILES]
    paths += [path for inner in FOLDERS for path in sorted((folder / inner).rglob("*"))]
    for path in paths:
        if path.is_file() and not path.is_symlink() and path.stat().st_size <= FILE_BYTES:
            with suppress(OSError, UnicodeDecodeError):
                text = refer_to_values(path.read_text(encoding="utf-8"), task)
                yield path.relative_to(folder).as_posix(), hide_secrets(text, secrets)


def _variables(task: Task) -> Mapping[str, Any]:
    env = task.workload.get("env")
    return env if isinstance(env, Mapping) else {}


def _without_variables(data: Any) -> Any:
    """Plain data without the values of variables, wherever a block of them stands."""
    if isinstance(data, Mapping):
        return {
            name: hide_variables(item) if name == "env" and isinstance(item, Mapping) else _without_variables(item)
            for name, item in data.items()
        }
    return [_without_variables(item) for item in data] if isinstance(data, (list, tuple)) else data


def _scalars(data: Mapping[str, Any]) -> dict[str, Value]:
    """Nested data as names with dots and values; lists as JSON."""
    scalars: dict[str, Value] = {}
    for name, value in flatten(data).items():
        if value is None or value == "" or value == {} or value == []:
            continue
        text = value if isinstance(value, (bool, int, float, str)) else json.dumps(value, default=str)
        scalars[name[:NAME_CHARS]] = text[:TEXT_CHARS] if isinstance(text, str) else text
    return scalars


__all__ = ["tracked_result", "tracked_study", "tracked_trials"]
