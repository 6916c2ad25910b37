"""The one measured table of a mixed cluster there is: AMP's GPT-2 layouts on 12 V100 and 4 T4 (`../shared/ground-truth`)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autoscout.common.stats import kendall
from autoscout.core.config import Config
from autoscout.core.task import Objective, Task
from autoscout.simulators.training import TrainingModel
from benchmarks._simulator_tables import GROUND_TRUTH, rows_of_file

FILE = "train_amp_16gpu.csv"


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How predictions agree with measured times: mean absolute error, Kendall's tau, and how far behind the first choice is."""

    label: str
    rows: int
    error: float
    rank: float
    regret: float


def mixed_agreement(folder: Path = GROUND_TRUTH) -> list[Agreement]:
    """AMP's own model, ours as if all GPUs were the slow ones, and ours with both kinds; empty where the table is absent.

    Machines, recomputation and network as `benchmarks._simulator_tables.amp_tables` has them. None of it was used to fit constants. AMP cut
    the layers almost evenly, so shares are equal.
    """
    if not (folder / FILE).is_file():
        return []
    rows = [row for row in rows_of_file(folder / FILE) if row["experiment"] == "het_cluster" and row["status"] == "ok"]
    measured_s = np.array([float(row["iter_s"]) for row in rows])
    configs = [Config({name: int(row[name]) for name in ("tp", "pp", "dp", "mbs")}) for row in rows]
    found = {"AMP's own model": np.array([float(row["amp_predicted_s"]) for row in rows])}
    for label, gpus in (("`training`, all GPUs as slow as the T4", "16xT4"), ("`training`, both kinds", "12xV100-16+4xT4")):
        workload = {
            "model": "gpt2-345m",
            "sequence": 1024,
            "global_batch": 32,
            "attention": "torch",
            "zero": 0,
            "gradient_bytes": 2.0,
            "ar": 1,
        }
        hardware = {"gpus": gpus, "nic_gbps": 0.31, "node_gpus": 4}
        task = Task(system="amp", objective=Objective(metric="step_s"), workload=workload, hardware=hardware)
        found[label] = TrainingModel().predict(configs, task).value
    return [
        Agreement(
            label=label,
            rows=len(rows),
            error=float(np.mean(np.abs(predicted_s / measured_s - 1.0))),
            rank=kendall(predicted_s, measured_s),
            regret=float(measured_s[int(np.argmin(predicted_s))] / measured_s.min() - 1.0),
        )
        for label, predicted_s in found.items()
    ]
