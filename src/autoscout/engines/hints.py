"""Configurations that often do well, by what is asked for: few, and each a small change from the default."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from autoscout.core.config import Config, Value
from autoscout.core.task import Task
from autoscout.engines.table import EngineTable
from autoscout.space import Space

STEP = ("max_num_batched_tokens", "chunked_prefill_size")
MEMORY = ("gpu_memory_utilization", "mem_fraction_static")
TENSOR = ("tensor_parallel_size", "tp_size")
COPIES = ("data_parallel_size", "dp_size")
GAPS = ("itl_ms",)
"""Latencies that small steps improve."""
LOOKUPS = ("ngram", "ngram_gpu", "suffix", "NGRAM")
"""Ways of guessing that look up earlier text: any model can, and only some texts repeat themselves."""
MOST = 3


def hints_for(space: Space, task: Task, table: EngineTable, resting: Collection[str]) -> tuple[Config, ...]:
    """Complete valid configurations to try right after the default, best first.

    Args:
        space: Of the task.
        task: What is asked for.
        table: Which knobs are lossy.
        resting: Knobs that stay at their default.
    """
    limits = [limit.metric for limit in task.objective.limits]
    gaps = any(part in metric for metric in [*limits, task.objective.metric] for part in GAPS)
    changes: list[Mapping[str, Value]] = []
    lossy = {name: value for name in space.knobs if table.knobs[name].lossy and (value := _fp8(space, name)) is not None}
    if gaps:  # a prompt in a step lengthens the gap of every answer in it: shorter pieces, shorter gaps
        changes += [{**lossy, **dict.fromkeys(STEP, 1024)}, lossy, dict.fromkeys(STEP, 1024), dict.fromkeys(STEP, 512)]
    else:
        changes += [lossy, {**dict.fromkeys(STEP, 16384), **dict.fromkeys(MEMORY, 0.94)}]
    gpus = int(task.hardware["gpus"])
    if gpus > 1:
        changes.insert(0, {**dict.fromkeys(TENSOR, gpus), **dict.fromkeys(COPIES, 1)} if gaps else {**dict.fromkeys(COPIES, gpus)})
    changes = [{name: value} for name, value in _guesses(space, table)] + changes
    return _valid(space, changes, resting)


def _guesses(space: Space, table: EngineTable) -> list[tuple[str, Value]]:
    """The way of guessing that the model itself or a model of the user's is made for, where there is one."""
    rows = [table.knobs[name] for name in space.knobs if table.knobs[name].speculates]
    others = {row.name: [value for value in space.knobs[row.name].values if value not in (row.left_out, *LOOKUPS)] for row in rows}
    return [(name, values[0]) for name, values in others.items() if values]


def _fp8(space: Space, name: str) -> Value:
    return next((value for value in space.knobs[name].values if isinstance(value, str) and value.startswith("fp8")), None)


def _valid(space: Space, changes: list[Mapping[str, Value]], resting: Collection[str]) -> tuple[Config, ...]:
    default = space.default()
    configs = []
    for change in changes:
        offered = {name: value for name, value in change.items() if name in space.knobs and name not in resting}
        if offered:
            configs.append(space.project({**default, **offered}))
    return tuple(config for config in dict.fromkeys(configs) if config != default)[:MOST]


__all__ = ["hints_for"]
