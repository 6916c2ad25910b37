"""Trials as a pandas table, for notebooks. pandas is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from autoscout.analysis.curves import ordered
from autoscout.core.errors import Fault, PluginError
from autoscout.core.task import Task
from autoscout.core.trial import Trial

if TYPE_CHECKING:
    import pandas


def trials_dataframe(task: Task, trials: Sequence[Trial]) -> pandas.DataFrame:
    """One row per trial, indexed by its number: `status`, `phase`, `keeps_limits`, `metric.NAME`, `knob.NAME`, cost, times and worker.

    Columns are those of `summary.csv`, with the types of Python: a knob that is not used is missing, and so is a metric of a failure.

    Raises:
        PluginError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        fix = "pip install 'autoscout[pandas]'"
        raise PluginError(Fault(where="trials_dataframe", rule="needs pandas, which is not installed", fix=fix)) from error
    rows = [_row(task, trial) for trial in ordered(trials)]
    frame = pandas.DataFrame.from_records(rows)
    if not rows:
        return frame
    frame = frame.set_index("number")
    for column in ("started", "finished"):
        frame[column] = pandas.to_datetime(frame[column], unit="s", utc=True)
    return frame


def _row(task: Task, trial: Trial) -> dict[str, object]:
    answer = trial.measurement
    works = {} if answer.bounds else answer.metrics  # numbers of a part of a measurement are no results
    return {
        "number": trial.number,
        "status": answer.status.value,
        "fidelity": answer.fidelity.label,
        "phase": trial.proposal.origin.phase.value,
        "by": str(trial.proposal.origin.by),
        "repeat": trial.proposal.repeat,
        "keeps_limits": task.objective.loss(answer) != float("inf"),
        **{f"metric.{name}": value for name, value in works.items()},
        **{f"knob.{name}": value for name, value in trial.config.items()},
        "cost_s": answer.cost_s,
        "started": trial.started_s,
        "finished": trial.finished_s,
        "worker": trial.worker,
        "reason": answer.reason,
    }


__all__ = ["trials_dataframe"]
