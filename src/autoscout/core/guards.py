"""Guards: limits relative to the default's own value, which is known only once the default was measured.

Stored trials are never changed. Whoever judges trials (searching, choosing finalists, the report) binds the task to the default's
trials first; a guard whose value is not known yet does not bind. A searcher keeps the task it was built with, so the study tells it a
trial that breaks a guard without the objective's metric: a trial that ran but has an infinite loss, as with a broken limit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from statistics import median

from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.origin import Phase
from autoscout.core.task import Objective, Task
from autoscout.core.trial import Fidelity, Trial


def bind(task: Task, trials: Iterable[Trial], default: Config) -> Task:
    """The task with its guards as absolute limits, by the median of the default's trials at the highest fidelity.

    Trials of the final count alone where there are any, because finalists are compared with those. Binding again replaces the limits.
    """
    if not task.objective.guards:
        return task
    tried = [trial for trial in trials if trial.config == default and trial.ok]
    top = max((trial.measurement.fidelity for trial in tried), default=Fidelity.MEASURED)
    return replace(task, objective=_bound(task.objective, [trial for trial in tried if trial.measurement.fidelity is top]))


def _bound(objective: Objective, tried: list[Trial]) -> Objective:
    tried = [trial for trial in tried if trial.proposal.origin.phase is Phase.FINAL] or tried
    metrics: dict[str, list[float]] = {}
    for trial in tried:
        for name, value in trial.measurement.metrics.items():
            metrics.setdefault(name, []).append(value)
    return objective.bound({name: median(values) for name, values in metrics.items()})


def as_told(trial: Trial, task: Task, before: Iterable[Trial], default: Config) -> Trial:
    """A trial as a searcher is told it: without its objective where it breaks a guard by the trials stored so far.

    A bounded trial breaks a guard where even its bound does.

    Args:
        trial: As stored.
        task: With its guards.
        before: What was stored up to this trial; the default at the trial's own fidelity counts.
        default: The configuration that guards compare with.
    """
    answer = trial.measurement
    if not task.objective.guards or not (trial.ok or answer.bounds):
        return trial
    alike = [one for one in before if one.config == default and one.ok and one.measurement.fidelity is trial.measurement.fidelity]
    limits = [limit for limit in _bound(task.objective, alike).limits if limit.guard]
    if trial.ok:
        keeps = all(limit.holds(answer) for limit in limits)
    else:
        keeps = all(limit.allows(answer.bounds[limit.metric]) for limit in limits if limit.metric in answer.bounds)
    if keeps:
        return trial
    metrics, bounds = (
        {name: value for name, value in one.items() if name != task.objective.metric} for one in (answer.metrics, answer.bounds)
    )
    return replace(trial, measurement=replace(answer, metrics=metrics, bounds=bounds))


def refuse_unknown(trial: Trial, task: Task, default: Config) -> None:
    """Raise `ConfigError` where the default was measured and lacks the metric of a guard: it could never bind."""
    if trial.config != default or not trial.ok or trial.measurement.fidelity is not Fidelity.MEASURED:
        return
    metrics = ", ".join(sorted(trial.measurement.metrics))
    faults = [
        Fault(
            where="goal", field="guards", value=str(guard), rule=f"the default does not report {guard.metric}", fix=f"It reports: {metrics}"
        )
        for guard in task.objective.guards
        if guard.metric not in trial.measurement.metrics
    ]
    if faults:
        raise ConfigError(faults)


__all__ = ["as_told", "bind", "refuse_unknown"]
