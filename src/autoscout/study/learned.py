"""What simulators learn from before a study: trials of past studies, and tables of measurements."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from autoscout.common import document
from autoscout.core.config import Config, Value
from autoscout.core.errors import AutoScoutError, ConfigError, Fault, SpaceError
from autoscout.core.history import trials_of
from autoscout.core.journal import read_trials
from autoscout.core.task import Task
from autoscout.core.trial import Measurement, Proposal, Status, Trial
from autoscout.space import Knob, Space
from autoscout.space.interchange.optuna import is_optuna, read_optuna
from autoscout.study.setup import Setup
from autoscout.study.stores import open_store, stores_at

MOST = 2_000
"""Trials that are kept in the record of a study, about 1 MB; of more the last ones."""

FAILED = "failed elsewhere"


def learned(setup: Setup) -> tuple[Trial, ...]:
    """The trials that a campaign names as `simulate.learn_from`, as far as they say something of its goal.

    Raises:
        ConfigError: a place is not there or holds nothing of use; all of them at once.
    """
    trials: list[Trial] = []
    faults: list[Fault] = []
    for place in setup.campaign.simulate.learn_from:
        lessons: list[Trial] = []
        try:
            lessons = [one for trial in _from(place, setup) if (one := _bare(trial, setup)) is not None]
            if not any(trial.ok for trial in lessons):
                rule = f"holds no trial with {setup.task.objective.metric} and a knob of this space"
                raise ConfigError(Fault(where="simulate", field="learn_from", value=place, rule=rule, fix="Name another"))
        except AutoScoutError as error:
            faults += error.faults
        trials += lessons
    if faults:
        raise ConfigError(faults)
    return tuple(trials[-MOST:])


def _from(place: str, setup: Setup) -> list[Trial]:
    path = Path(place)
    if path.suffix == ".csv":
        return read_table(path, setup.space, setup.task)
    if path.suffix == ".jsonl":
        return read_trials(path)
    if is_optuna(path):
        return [trial for study in read_optuna(path) for trial in study.trials(setup.task.objective)]
    stores = stores_at(place)
    if not stores:
        rule, fix = "there is no study and no table", "Give a result folder, a store, trials.jsonl, a CSV file or Optuna's study.db"
        raise ConfigError(Fault(where="simulate", field="learn_from", value=place, rule=rule, fix=fix))
    trials: list[Trial] = []
    for target in stores:
        with closing(open_store(target, create=False)) as store:
            for record in store.studies():
                if record.name != setup.name and record.task.objective.metric == setup.task.objective.metric:
                    trials += trials_of(store, record.name)
    return trials


def _bare(trial: Trial, setup: Setup) -> Trial | None:
    """A trial with what a simulator reads of it; None where it says nothing: stopped early, or answered by another simulator."""
    answer = trial.measurement
    if answer.fidelity < setup.fidelity or answer.status in (Status.ABORTED, Status.BOUNDED):
        return None
    if not trial.config.keys() & setup.space.knobs.keys() or (answer.ok and setup.task.objective.metric not in answer.metrics):
        return None
    measurement = Measurement(status=answer.status, metrics=answer.metrics, reason="" if answer.ok else FAILED)
    return Trial(proposal=Proposal(config=trial.config), measurement=measurement)


def read_table(path: Path, space: Space, task: Task) -> list[Trial]:
    """The rows of a CSV file as trials: columns named like knobs, and like metrics; a row without the goal's number failed.

    Raises:
        ConfigError: it cannot be read, or lacks what it needs.
    """
    where = "simulate.learn_from"
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(Fault(where=where, value=str(path), rule=f"cannot be read: {error}", fix="Give a CSV file")) from error
    columns = set(rows[0]) if rows else set()
    metric = task.objective.metric
    if metric not in columns or not columns & space.knobs.keys():
        rule = f"needs a column {metric}, one per knob ({', '.join(list(space.knobs)[:5])}, ...) and a row"
        names = ", ".join(sorted(str(name) for name in columns)[:12]) or "nothing"
        raise ConfigError(Fault(where=where, value=str(path), rule=rule, fix=f"It has: {names}"))
    metrics = {metric, *(goal.metric for goal in task.objective.goals), *(limit.metric for limit in task.objective.limits)}
    return [_row(row, space, metrics, metric) for row in rows]


def _row(row: Mapping[str, str | None], space: Space, wanted: set[str], metric: str) -> Trial:
    config = Config({name: _value(knob, text) for name, knob in space.knobs.items() if (text := (row.get(name) or "").strip())})
    metrics = {name: number for name in wanted if math.isfinite(number := _number(row.get(name)))}
    ran = metric in metrics and (row.get("status") or "ok").strip().lower() == "ok"
    answer = Measurement(status=Status.OK, metrics=metrics) if ran else Measurement(status=Status.CRASHED, reason=FAILED)
    return Trial(proposal=Proposal(config=config), measurement=answer)


def _value(knob: Knob, text: str) -> Value:
    """As the knob reads it; a value that it does not offer here says something too."""
    try:
        return knob.parse(text)
    except SpaceError:
        value = document.compose(text, knob.name).value
        return value if isinstance(value, (bool, int, float, str)) else text


def _number(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return math.nan


__all__ = ["learned", "read_table"]
