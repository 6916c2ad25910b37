"""Which metric of a command is to be improved, and which way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from autoscout.backends.command.workload import Workload
from autoscout.common import fields
from autoscout.common.text import nearest
from autoscout.core.errors import Fault
from autoscout.core.task import Objective

ALWAYS = ("wall_s", "peak_mem_gib")
"""Metrics that every command has."""


def read_objective(data: Mapping[str, Any], workload: Workload) -> tuple[Objective, Workload, list[Fault]]:
    """The objective, and the workload with a lone metric given its name.

    Without a goal the only metric counts, or else the wall time.
    """
    faults: list[Fault] = []
    named = [name for name in workload.metrics if name not in ("", "*")]
    first = str(fields.as_list(data.get("metrics") or "")[0]).partition(":")[0].strip()
    metric = str(data.get("metric") or first or (named[0] if len(named) == 1 and "" not in workload.metrics else ""))
    if not metric and (named or "*" in workload.metrics):
        fix = f"There are: {', '.join([*named, *ALWAYS])}"
        faults.append(Fault(where="goal", field="metric", rule="which of the metrics is to be improved?", fix=fix))
    if (lone := workload.metrics.get("")) is not None:
        name = metric or ("wall_s" if lone.wall else "")
        workload = workload.model_copy(update={"metrics": {key or name: source for key, source in workload.metrics.items()}})
        if not name:
            fix = "Write goal: {metric: NAME}, or metrics: {NAME: ...}"
            faults.append(Fault(where="goal", field="metric", rule="what is the number called?", fix=fix))
    known = {*workload.metrics, *ALWAYS} - {""}
    objective, wrong = fields.read_objective(data, metrics=None if "*" in known else known, default=metric or "wall_s")
    return objective, workload, [*faults, *(one if workload.metrics else _with_source(one) for one in wrong)]


def _with_source(fault: Fault) -> Fault:
    """A fault of a command that is not said to print anything: what is missing is where the metric is found."""
    name = fault.value.strip("'")
    if fault.rule != fields.NO_METRIC or nearest(name, ALWAYS):
        return fault
    return replace(fault, fix=f"Say where it is printed, such as -w 'metrics.{name}=regex:{name} ([0-9.]+)'")
