"""Studies of Optuna in a SQLite file: their spaces and their trials. Those that AutoScout wrote come back as they were."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autoscout.core.config import Config, Value
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.origin import Origin
from autoscout.core.task import Direction, Objective
from autoscout.core.trial import Measurement, Proposal, Status, Trial
from autoscout.space.simple import simple_space
from autoscout.space.space import Space
from autoscout.space.yaml import read_space

PREFIX = "autoscout."
"""Begins the names of the attributes that AutoScout writes, besides the metrics of a trial, which have their own names."""
EXTRA = "optuna-db"
FAILED = "failed in Optuna"


@dataclass(frozen=True, kw_only=True)
class OptunaStudy:
    """One study.

    Attributes:
        name: Its name.
        metrics: Of its objectives, as far as it names them.
        directions: Which way is better, one for each objective.
        attributes: What its authors say of it.
        shapes: Of each parameter: every distribution that a trial had.
        rows: Its trials that have ended, as Optuna has them.
    """

    name: str
    metrics: tuple[str, ...]
    directions: tuple[Direction, ...]
    attributes: Mapping[str, Any]
    shapes: Mapping[str, Sequence[Any]]
    rows: Sequence[Any] = field(repr=False)

    def trials(self, objective: Objective) -> tuple[Trial, ...]:
        """Its trials, with the metrics of an objective where the study does not name its own.

        Raises:
            ConfigError: the study improves something else, as far as it can be told.
        """
        names = self.metrics or tuple(goal.metric for goal in objective.goals)
        if not self.metrics and self.directions != tuple(goal.direction for goal in objective.goals):
            goals = ", ".join(map(str, objective.goals))
            rule = f"its objectives ({', '.join(self.directions)}) have no names and are not those of the campaign ({goals})"
            raise ConfigError(Fault(where=self.name, rule=rule, fix="Name them with `study.set_metric_names`, or change the goal"))
        return tuple(_trial(row, names, number) for number, row in enumerate(self.rows))

    def space(self) -> Space:
        """The space: as AutoScout wrote it, or else what the distributions say; conditions as far as all trials agree on one."""
        text = self.attributes.get(f"{PREFIX}space")
        if isinstance(text, str) and text:
            return read_space(text + "\n", where=self.name)
        return simple_space({name: _entry(name, shapes, self.rows) for name, shapes in self.shapes.items()})


def is_optuna(path: Path) -> bool:
    """Whether a file is a SQLite database of Optuna's."""
    try:
        with path.open("rb") as file:
            if not file.read(16).startswith(b"SQLite format 3"):
                return False
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as base:
            tables = {row[0] for row in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except (OSError, sqlite3.Error, ValueError):
        return False
    return {"studies", "trials", "trial_params", "study_directions"} <= tables


def read_optuna(path: Path) -> list[OptunaStudy]:
    """The studies in a file.

    Raises:
        ConfigError: Optuna is not installed, or cannot read it.
    """
    try:
        import optuna
    except ImportError as error:
        rule, fix = "is a study of Optuna, which is not installed", f"pip install 'autoscout[{EXTRA}]'"
        raise ConfigError(Fault(where=str(path), rule=rule, fix=fix)) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        storage = optuna.storages.get_storage(f"sqlite:///{path.absolute()}")
        names = [summary.study_name for summary in optuna.get_all_study_summaries(storage, include_best_trial=False)]
        return [_study(optuna.load_study(study_name=name, storage=storage)) for name in names]
    except Exception as error:
        rule = f"Optuna {optuna.__version__} cannot read it: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
        raise ConfigError(Fault(where=str(path), rule=rule[:400], fix="`optuna storage upgrade` brings an older one up to date")) from error


def optuna_space(path: Path) -> Space:
    """The space of the only study in a file.

    Raises:
        ConfigError: there are several, or none; it has no parameters.
    """
    studies = read_optuna(path)
    if len(studies) != 1 or not (studies[0].shapes or studies[0].attributes.get(f"{PREFIX}space")):
        titles = ", ".join(study.name for study in studies[:10])
        rule = f"must hold one study with parameters, and holds {len(studies)}" + (f": {titles}" if titles else "")
        raise ConfigError(Fault(where=str(path), rule=rule, fix="Copy that study alone: `optuna.copy_study`"))
    return studies[0].space()


def _study(study: Any) -> OptunaStudy:
    rows = [row for row in study.get_trials(deepcopy=False) if row.state.is_finished()]
    shapes: dict[str, list[Any]] = {}
    for row in rows:
        for name, shape in row.distributions.items():
            if shape not in shapes.setdefault(name, []):
                shapes[name].append(shape)
    directions = tuple(Direction(direction.name.lower()) for direction in study.directions)
    return OptunaStudy(
        name=study.study_name,
        metrics=tuple(study.metric_names or ()),
        directions=directions,
        attributes=dict(study.user_attrs),
        shapes=shapes,
        rows=rows,
    )


def _trial(row: Any, names: Sequence[str], number: int) -> Trial:
    attributes = {str(name): value for name, value in row.user_attrs.items()}
    metrics = {name: float(value) for name, value in attributes.items() if not name.startswith(PREFIX) and _is_number(value)}
    metrics |= {name: float(value) for name, value in zip(names, row.values or (), strict=False) if math.isfinite(value)}
    status = _status(row.state.name, attributes.get(f"{PREFIX}status"))
    is_whole = all(name in metrics for name in names)
    status = Status.WRONG_OUTPUT if status is Status.OK and not is_whole else status
    reason = "" if status is Status.OK else str(attributes.get(f"{PREFIX}reason", FAILED))
    return Trial(
        proposal=Proposal(config=Config(row.params), origin=Origin(by=str(attributes.get(f"{PREFIX}by", "optuna"))), repeat=0),
        measurement=Measurement(status=status, metrics=metrics, reason=reason),
        number=number,
        started_s=row.datetime_start.timestamp() if row.datetime_start else 0.0,
        finished_s=row.datetime_complete.timestamp() if row.datetime_complete else 0.0,
    )


def _status(state: str, written: object) -> Status:
    if isinstance(written, str) and written in {status.value for status in Status}:
        return Status(written)
    return {"COMPLETE": Status.OK, "PRUNED": Status.BOUNDED}.get(state, Status.CRASHED)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _entry(name: str, shapes: Sequence[Any], rows: Iterable[Any]) -> dict[str, Any]:
    """A parameter as a campaign writes a knob. Its default is the first value that was tried."""
    rows, entry = list(rows), _values(shapes)
    history: list[Value] = [row.params[name] for row in rows if name in row.params]
    if history and history[0] is not None:
        entry["default"] = history[0]
    condition = _condition(name, rows)
    return {**entry, **({"when": condition} if condition else {})}


def _values(shapes: Sequence[Any]) -> dict[str, Any]:
    choices = [value for shape in shapes for value in getattr(shape, "choices", ())]
    if choices:
        unique: list[Value] = []
        for value in choices:
            if value is not None and not any(type(value) is type(other) and value == other for other in unique):
                unique.append(value)
        return {"type": "bool"} if set(map(type, unique)) == {bool} else {"values": unique}
    low, high, shape = min(shape.low for shape in shapes), max(shape.high for shape in shapes), shapes[0]
    entry: dict[str, Any] = {"range": [low, high]}
    if shape.log:
        return {**entry, "log": True}
    return {**entry, "step": shape.step} if shape.step not in (None, 1) or isinstance(shape.step, float) else entry


def _condition(name: str, rows: Sequence[Any]) -> str:
    """Which value of another parameter decides whether this one is there; empty where it always is, or nothing decides."""
    there = [row.params for row in rows if name in row.params]
    absent = [row.params for row in rows if name not in row.params]
    if not absent or not there:
        return ""
    for other in sorted({key for params in there for key in params} - {name}):
        with_it, without = [{repr(params.get(other)) for params in group} for group in (there, absent)]
        if not with_it & without and "None" not in with_it:
            values = ", ".join(sorted(with_it))
            return f"{other} == {values}" if len(with_it) == 1 else f"{other} in [{values}]"
    return ""


__all__ = ["EXTRA", "PREFIX", "OptunaStudy", "is_optuna", "optuna_space", "read_optuna"]
