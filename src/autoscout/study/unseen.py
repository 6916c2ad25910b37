"""Answer and default on the windows of a traffic that a study does not judge on, by the serving simulator.

Where the study looks for the capacity, a limit is looked at with the rate that the configuration is predicted to hold in every judged
window: what is asked of it when its owner trusts the study, and other hours come.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from autoscout.analysis.unseen import UnseenLimit, UnseenWindows
from autoscout.core.config import Config
from autoscout.core.task import Direction, Objective, Task
from autoscout.simulators.serving.model import ServingModel
from autoscout.simulators.serving.read import CAPACITY, SESSIONS
from autoscout.study.drift import spread_of, unmodelled
from autoscout.study.setup import Setup
from autoscout.traffic.description import Traffic
from autoscout.traffic.typical import mark_typical

MOST_WINDOWS = 4  # that are simulated: the busiest, and those most unlike the others
REQUESTS = 1024  # enough for a queue that grows to show in the percentiles


def unseen_of(setup: Setup, configs: Mapping[str, Config]) -> UnseenWindows | None:
    """How far configurations stand from the limits; None where there are no such windows or no limits.

    Args:
        setup: The study.
        configs: By what they are called.
    """
    data, limits = setup.task.workload.get("traffic"), setup.task.objective.limits
    traffic = Traffic.from_json(data) if data else None
    if traffic is None or not traffic.unseen or not limits:
        return None
    held_out = len(traffic.unseen)
    if unknown := next((reason for config in configs.values() if (reason := unmodelled(setup, config))), ""):
        return UnseenWindows(held_out=held_out, unknown=unknown)
    windows = tuple(window.model_copy(update={"held_out": False}) for window in traffic.unseen)
    typical = mark_typical(Traffic(source=traffic.source, windows=windows), MOST_WINDOWS).judged
    model = ServingModel()
    rates = {name: _least(model.metrics(config, setup.task)) if _asks_capacity(setup.task) else None for name, config in configs.items()}
    rows = []
    for window in typical:
        task = replace(setup.task, workload={**setup.task.workload, **traffic.of_window(window.name).to_load()})
        capacities, simulator = ServingModel(), ServingModel()
        objective = Objective(metric="output_throughput", direction=Direction.MAXIMIZE, limits=limits)
        for name, config in configs.items():
            rate, capacity, at = rates[name], None, task
            if rate is not None:
                capacity = capacities.metrics(config, task).get(CAPACITY)
                at = replace(task, objective=objective, workload={**task.workload, "request_rate": rate, "requests": REQUESTS})
            values = {} if rate == 0.0 else simulator.metrics(config, at)
            about = {"name": name, "window": window.name, "rate": rate, "capacity": capacity}
            answers = [
                limit for limit in limits if limit.op.startswith("<") and (limit.metric in values or "output_throughput" not in values)
            ]
            rows += [UnseenLimit.of(limit, values.get(limit.metric), **about) for limit in answers]
    order = list(configs)
    rows.sort(key=lambda row: order.index(row.name))
    return UnseenWindows(rows=tuple(rows), held_out=held_out, error=spread_of(setup.task)) if rows else None


def _asks_capacity(task: Task) -> bool:
    return task.objective.metric in (CAPACITY, SESSIONS)


def _least(metrics: Mapping[str, float]) -> float:
    """The rate that is held in every window."""
    return min((value for name, value in metrics.items() if name.startswith(f"{CAPACITY}_w")), default=metrics.get(CAPACITY, 0.0))


__all__ = ["unseen_of"]
