"""Settings that a vendor publishes as running, and the predicted chance that they fit: `python -m benchmarks.published [--json]`.

`published_settings.csv`: layouts of NVIDIA's performance summary of Megatron-Bridge (docs/performance-summary.md and its archive) that a
recipe of the same repository completes with what is computed again (src/megatron/bridge/perf_recipes/<recipe>, commit 067f987df,
Apache-2.0). Layouts that keep anything on the host, and ones whose recipe has changed since, are not listed.
"""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from autoscout.core.config import Config
from autoscout.core.task import Objective, Task
from autoscout.estimate.search import LIKELY
from autoscout.simulators.training.model import TrainingModel

SETTINGS = Path(__file__).with_name("published_settings.csv")
SOURCE = "https://github.com/NVIDIA-NeMo/Megatron-Bridge/blob/067f987df/src/megatron/bridge/perf_recipes/"
LISTED = ("deepseek-v3", "kimi-k2")
"""Models of 61 layers: the recipes list the layers of each stage."""
KNOBS = ("tp", "pp", "cp", "vp", "ep", "mbs")


@dataclass(frozen=True, kw_only=True)
class Published:
    """One setting with its prediction."""

    row: dict[str, str]
    chance: float

    @property
    def layout(self) -> str:
        again = " ".join(part for part in (self.row.get("ar", ""), self.row.get("recompute_modules", "")) if part)
        knobs = " ".join(f"{name}={self.row[name]}" for name in KNOBS if self.row.get(name, "1") != "1")
        return f"{knobs}; again: {again}" if again else knobs


def published() -> list[Published]:
    """Every listed setting, asked as a user of Megatron-Bridge would."""
    with SETTINGS.open(newline="") as file:
        rows = [{name: cell for name, cell in row.items() if cell} for row in csv.DictReader(file)]
    simulator = TrainingModel()
    return [Published(row=row, chance=_chance(simulator, row)) for row in rows]


def _chance(simulator: TrainingModel, row: dict[str, str]) -> float:
    task = Task(
        system="megatron-bridge",
        objective=Objective(metric="step_s"),
        workload={"model": row["model"], "sequence": int(row["seq"]), "global_batch": int(row["gbs"]), "precision": row["precision"]},
        hardware={"gpus": f"{row['n_gpus']}x{row['gpu']}"},
    )
    knobs = {name: int(row[name]) for name in KNOBS if name in row}
    more = {name: row[name] for name in ("ar", "recompute_modules") if name in row}
    share = {"recompute_share": float(row["recompute_share"])} if "recompute_share" in row else {}
    listed = {"pipeline_model_parallel_layout": True} if row["model"] in LISTED else {}
    return float(simulator.predict([Config({**knobs, "sp": knobs["tp"] > 1, **more, **share, **listed})], task).feasible[0])


def likely_share(found: list[Published]) -> float:
    """Of the settings, those that are called likely to fit."""
    return sum(one.chance >= LIKELY for one in found) / len(found)


def main() -> None:
    found = published()
    if "--json" in sys.argv:
        rows = [{**one.row, "chance": round(one.chance, 3)} for one in found]
        print(json.dumps({"settings": len(found), "likely": round(likely_share(found), 3), "rows": rows}))
        return
    for one in found:
        row = one.row
        print(f"{row['model']:16s} {row['n_gpus']:>5s} {row['gpu']:6s} {row['precision']:6s} {one.layout:50s} {one.chance:.0%}")
    print(f"{likely_share(found):.0%} of {len(found)} are called likely")


if __name__ == "__main__":
    main()
