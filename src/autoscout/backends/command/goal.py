"""Which metric of a command is to be improved, and which way."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from autoscout.backends.command.fields import Reader, suggest
from autoscout.backends.command.sources import Source
from autoscout.backends.command.workload import Workload
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.task import Direction, Limit, Objective

ALWAYS = ("wall_s", "peak_mem_gib")
"""Metrics that every command has."""

_MORE = r"throughput|goodput|per_s(ec(ond)?)?(_|$)|_per_gpu|tokens_per|(^|_)([tg]?flops|mfu|qps|rps|tps|fps|iops|accuracy|speedup)(_|$)"
_LESS = (
    r"(^|_)(time|latency|ttft|tpot|itl|e2el|jct|makespan|loss|perplexity|ppl|cost|mem|memory|energy|power)(_|$)|_(s|ms|us|ns|gib|gb|mb|j)$"
)


def direction_of(metric: str) -> Direction | None:
    """Which way is better, where the name says so."""
    if re.search(_MORE, metric):
        return Direction.MAXIMIZE
    return Direction.MINIMIZE if re.search(_LESS, metric) else None


def read_objective(data: Mapping[str, Any], workload: Workload) -> tuple[Objective, Workload, list[Fault]]:
    """The objective, and the workload with a lone metric given its name.

    Without a goal the only metric counts, or else the wall time. The direction may be left out where the metric's name leaves
    no doubt; a guess would cost the user a whole study.
    """
    reader = Reader("goal")
    reader.keys("", data, ("metric", "direction", "limits", "slo"))
    named = [name for name in workload.metrics if name not in ("", "*")]
    metric = str(data.get("metric") or (named[0] if len(named) == 1 and "" not in workload.metrics else ""))
    if not metric and (named or "*" in workload.metrics):
        reader.fault("metric", "which of the metrics is to be improved?", fix=f"There are: {', '.join([*named, *ALWAYS])}")
    if "" in workload.metrics:
        workload = replace(workload, metrics=_renamed(workload.metrics, metric or ("wall_s" if workload.metrics[""].wall else "")))
        if "" in workload.metrics:
            reader.fault("metric", "what is the number called?", fix="Write goal: {metric: NAME}, or metrics: {NAME: ...}")
    metric = metric or "wall_s"
    there = {*workload.metrics, *ALWAYS} - {""}
    limits = _limits(data, reader)
    for name, field in [(metric, "metric"), *((limit.metric, "slo") for limit in limits)]:
        if name not in there and "*" not in there:
            reader.fault(field, "no such metric", name, suggest(name, there))
    direction = _direction(metric, data.get("direction"), reader)
    return Objective(metric=metric, direction=direction, limits=limits), workload, reader.faults


def _renamed(metrics: Mapping[str, Source], name: str) -> dict[str, Source]:
    return {key or name: source for key, source in metrics.items()}


def _limits(data: Mapping[str, Any], reader: Reader) -> tuple[Limit, ...]:
    found = []
    for text in (*(data.get("limits") or ()), *(data.get("slo") or ())):
        try:
            found.append(Limit.parse(str(text)))
        except ConfigError as error:
            reader.faults.extend(error.faults)
    return tuple(found)


def _direction(metric: str, given: Any, reader: Reader) -> Direction:
    if given is not None:
        try:
            return Direction(str(given))
        except ValueError:
            reader.fault("direction", "must be minimize or maximize", given)
            return Direction.MINIMIZE
    guess = direction_of(metric)
    if guess is None:
        reader.fault("direction", f"is more {metric} better, or less?", fix="Write direction: minimize or direction: maximize")
    return guess or Direction.MINIMIZE
