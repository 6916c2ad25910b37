"""Trials in the layout of vLLM's sweeps."""

from __future__ import annotations

import json

from autoscout.core.config import Config
from autoscout.core.trial import Fidelity, Measurement, Proposal, Status, Trial
from autoscout.report.sweep import sweep_files
from autoscout.space import Choice


def trial(number: int, repeat: int = 0, status: Status = Status.OK, fidelity: Fidelity = Fidelity.MEASURED, **config: int) -> Trial:
    metrics = {"request_throughput": float(number)} if status is Status.OK else {}
    measurement = Measurement(status=status, metrics=metrics, fidelity=fidelity)
    return Trial(number=number, proposal=Proposal(config=Config(config), repeat=repeat), measurement=measurement)


def test_runs_of_a_configuration_lie_together() -> None:
    knobs = [Choice("max_num_seqs", [64, 128]), Choice("block_size", [16])]
    trials = [
        trial(1, max_num_seqs=64, block_size=16),
        trial(2, repeat=1, max_num_seqs=64, block_size=16),
        trial(3, max_num_seqs=128, block_size=16),
        trial(4, status=Status.CRASHED, max_num_seqs=64, block_size=16),
        trial(5, fidelity=Fidelity.SIMULATED, max_num_seqs=64, block_size=16),
    ]
    files = sweep_files(trials, knobs)
    folders = {name.split("/")[0] for name in files}
    assert len(folders) == 2
    first = json.loads(next(text for name, text in files.items() if name.endswith("summary.json")))
    assert first == [
        {"request_throughput": 1.0, "run_number": 0, "max_num_seqs": 64, "block_size": 16},
        {"request_throughput": 2.0, "run_number": 1, "max_num_seqs": 64, "block_size": 16},
    ]
    assert sorted(name.split("/")[1] for name in files) == ["run=0.json", "run=0.json", "run=1.json", "summary.json", "summary.json"]
