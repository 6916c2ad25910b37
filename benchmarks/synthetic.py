"""Synthetic tables, for ablations: `python -m benchmarks.synthetic FOLDER` writes them.

A small analytic cost model of training a mixture-of-experts transformer on 16 GPUs. Nothing here was measured.

The knobs are those of the paper's appendix A, their ranges coarser, so that every configuration can be a row. Three sizes, for its
scalability study: `3dp` (three-dimensional parallelism and the micro batch), `5dp` (context, expert and sequence parallelism
besides), `full` (recomputation and the communication knobs besides). The model has what makes the real thing hard: memory limits,
bubbles, bandwidth that drops outside a node, overlap that depends on two knobs at once, and knobs that exist only under others.
"""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autoscout.core.config import Config
from autoscout.space import Choice, Flag, Grid, Knob, Space

GPUS, PER_NODE, LAYERS, HIDDEN, EXPERTS, SEQUENCE, GLOBAL_BATCH = 16, 8, 48, 4096, 32, 8192, 64
MEMORY_GB, PARAMETERS_G = 80.0, 13.0
_DEGREES = (1, 2, 4, 8)

SPACES = {
    "megatron-3dp": ("tp", "pp", "dp", "mbs"),
    "megatron-5dp": ("tp", "pp", "dp", "cp", "ep", "sp", "mbs"),
    "megatron-full": ("tp", "pp", "dp", "cp", "ep", "sp", "mbs", "ar", "tp_comm", "ddp", "ddp_bucket"),
}
"""Name -> the knobs that are free; the others stay at their default."""


def _knobs() -> dict[str, Knob]:
    return {
        knob.name: knob
        for knob in (
            Choice("tp", _DEGREES, default=8, help="tensor parallel degree"),
            Choice("pp", _DEGREES, help="pipeline parallel degree"),
            Choice("dp", (1, 2, 4, 8, 16), default=2, help="data parallel degree"),
            Choice("cp", _DEGREES, help="context parallel degree"),
            Choice("ep", _DEGREES, help="expert parallel degree"),
            Flag("sp", when="tp > 1", help="sequence parallelism"),
            Grid("mbs", values=_DEGREES, log=True, help="micro batch size"),
            Flag("ar", help="activation recomputation"),
            Grid("tp_comm", 12, 20, step=2, default=16, when="tp > 1", help="SMs for tensor parallel communication"),
            Grid("ddp", values=(1, 4, 16), default=4, log=True, when="dp > 1", help="gradient buckets"),
            Grid("ddp_bucket", values=(1, 2, 4, 6, 8), default=4, when="dp > 1", unit="MB", help="bucket size"),
        )
    }


def space(name: str) -> Space:
    """The space of one of `SPACES`."""
    free = SPACES[name]
    knobs = [knob for key, knob in _knobs().items() if key in free]
    product = " * ".join(key for key in ("tp", "pp", "dp", "cp") if key in free)
    rules = [f"{product} == gpus", "global_batch % (dp * mbs) == 0"]
    if "ep" in free:
        rules.append("(dp * cp) % ep == 0")
    return Space(knobs, rules, {"gpus": GPUS, "global_batch": GLOBAL_BATCH})


def memory_gb(config: Config) -> float:
    """Peak memory of one GPU: weights and optimizer, activations, buffers."""
    tp, pp, dp, cp, ep, mbs = (_number(config, key) for key in ("tp", "pp", "dp", "cp", "ep", "mbs"))
    weights = PARAMETERS_G / (tp * pp) * (0.25 + 0.75 / ep)
    states = weights * (4.0 + 12.0 / dp)  # bf16 weights and gradients, sharded optimizer states
    held = min(pp, GLOBAL_BATCH / (dp * mbs))  # micro batches in flight
    layer = mbs * SEQUENCE / cp * HIDDEN * 34e-9 / (tp if config.get("sp") else 0.4 * tp + 0.6)
    activations = layer * LAYERS / pp * held * (0.12 if config.get("ar") else 1.0)
    return states + activations + 3.0 + 0.4 * _number(config, "ddp_bucket", 4)


def step_s(config: Config) -> float:
    """Seconds of one optimizer step."""
    tp, pp, dp, cp, ep, mbs = (_number(config, key) for key in ("tp", "pp", "dp", "cp", "ep", "mbs"))
    micro_batches = GLOBAL_BATCH / (dp * mbs)
    tokens = mbs * SEQUENCE / cp
    efficiency = 0.62 * tokens / (tokens + 2600.0) / (1.0 + 0.04 * (tp - 1))
    flops = 6.0 * PARAMETERS_G * 0.25e9 * tokens * (4.0 / 3.0 if config.get("ar") else 1.0)
    compute = flops / (tp * pp) / (312e12 * efficiency)
    nvlink, network = 220e9, 24e9
    bandwidth = nvlink if tp * cp <= PER_NODE else network
    tensor = 0.0
    if tp > 1:
        streams = _number(config, "tp_comm", 16)
        share = 1.0 - ((streams - (13.0 + 1.5 * math.log2(tp))) / 11.0) ** 2
        volume = 8.0 * tokens * HIDDEN * 2 * (tp - 1) / tp * LAYERS / pp
        tensor = volume / bandwidth * (0.8 if config.get("sp") else 1.0) * (1.45 - 0.6 * share)
        compute *= 1.0 + 0.006 * (streams - 12.0)  # SMs that talk do not compute
    context = 0.0 if cp == 1 else 4.0 * tokens * HIDDEN * 2 * (cp - 1) / bandwidth * LAYERS / pp * 0.7
    expert = 4.0 * tokens * HIDDEN * 2 * (ep - 1) / ep / (nvlink if tp * ep <= PER_NODE else network) * LAYERS / pp
    imbalance = 1.0 + 0.03 * math.log2(EXPERTS / ep) if ep > 1 else 1.0 + 0.3
    bubble = 1.0 + (pp - 1) / micro_batches
    pipeline = (compute * imbalance + tensor + context + expert) * micro_batches * bubble
    return pipeline + _gradients_s(config, compute * micro_batches, dp * cp, tp * pp, network)


def _gradients_s(config: Config, compute_s: float, replicas: float, shards: float, network: float) -> float:
    """What gradient exchange adds after overlap: few large buckets overlap badly, many small ones pay latency."""
    if replicas == 1:
        return 0.0
    buckets, size = _number(config, "ddp", 4), _number(config, "ddp_bucket", 4)
    volume_s = 2.0 * PARAMETERS_G * 2e9 / shards * (replicas - 1) / replicas / network
    latency_s = 0.012 * buckets + 0.35 / size
    hidden = min(0.9, 0.35 + 0.14 * math.log2(buckets) - 0.012 * (size - 5.0) ** 2)
    return max(volume_s * (1.0 - hidden), volume_s - compute_s) + latency_s


def _number(config: Config, key: str, default: float = 1.0) -> float:
    value = config.get(key, default)
    assert isinstance(value, (int, float)), f"{key} is a number"
    return float(value)


@dataclass(frozen=True, kw_only=True)
class Written:
    """A table to be written: all configurations and their costs, None for a failure; conditions read `PARENT > NUMBER` or `FLAG`."""

    name: str
    space: Space
    rows: Sequence[tuple[Config, float | None]]
    unit: str
    workload: Mapping[str, object]


def write_tables(folder: Path, tables: Sequence[Written]) -> None:
    """Write tables that `autoscout bench` reads into a folder that is made if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    manifest = {}
    for table in tables:
        knobs = table.space.knobs
        params = [_param(knob, knobs) for knob in knobs.values()]
        manifest[table.name] = {"family": "synthetic", "objective": "min", "unit": table.unit, "params": params}
        with (folder / f"{table.name}.csv").open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow([*knobs, "value"])
            rows.writerows([*(config.get(key, "") for key in knobs), "" if cost is None else cost] for config, cost in table.rows)
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    (folder / "tasks.json").write_text(json.dumps({table.name: dict(table.workload) for table in tables}), encoding="utf-8")


def write(folder: Path) -> Path:
    """Every valid configuration of each space with its cost; what does not fit has failed."""
    facts = {"synthetic": True, "layers": LAYERS, "hidden": HIDDEN, "gpus": GPUS, "global_batch": GLOBAL_BATCH, "seq_len": SEQUENCE}
    tables = []
    for name in SPACES:
        where = space(name)
        rows = [(config, step_s(config) if memory_gb(config) <= MEMORY_GB else None) for config in where.enumerate()]
        tables.append(Written(name=name, space=where, rows=rows, unit="s/step", workload=facts))
    write_tables(folder, tables)
    return folder


def _param(knob: Knob, knobs: Mapping[str, Knob]) -> dict[str, object]:
    """An entry of the manifest."""
    found: dict[str, object] = {
        "name": knob.name,
        "kind": "ordinal" if knob.ordered and not knob.sparse else "categorical",
        "role": "sparse" if knob.sparse else "dense",
        "values": list(knob.values),
        "default": knob.default,
    }
    if knob.when:
        parent, above, least = str(knob.when).partition(" > ")
        values = [value for value in knobs[parent].values if isinstance(value, int)]
        found["when"] = {parent: [value for value in values if value > int(least)] if above else [True]}
    return found


if __name__ == "__main__":
    print(write(Path(sys.argv[1])))
