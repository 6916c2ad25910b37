"""A whole study of an engine without the engine: default, search, failures, final, report and hand-over, against the fake one."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from serving_trials import members

import autoscout
from autoscout.core.trial import Status
from autoscout.testing.openai_server.settings import EXTRA

WORKS = {"vllm": [{"max_num_seqs": 64, "max_num_batched_tokens": 1024}], "sglang": []}
FAULTS = "--step-ms 1 --fault-if max_num_seqs>200:oom_start --fault-if max_num_batched_tokens>4000:crash@20"


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_study_survives_its_failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    monkeypatch.setenv("AUTOSCOUT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(EXTRA, FAULTS)
    command = [sys.executable, "-m", "autoscout.testing.openai_server", "--vocab-size", "200000", "--max-num-batched-tokens", "2048"]
    load = {"input_tokens": 16, "output_tokens": 8, "concurrency": 8, "requests": 40}
    campaign = {
        "system": engine,
        "name": "fake",
        "workload": {"model": "llama-3.1-8b", "engine_command": command, **load},
        "hardware": {"gpus": 0, "cores": 2},
        "goal": {"metric": "output_throughput"},
        "budget": {"trials": 6},
        "first": WORKS[engine],
        "measure": {"dirty_repeats": 0},
        "finals": {"finalists": 1, "rounds": 1, "simplify": False},
    }
    outcome = autoscout.tune(campaign, tmp_path / "out")
    statuses = {trial.measurement.status for trial in outcome.trials}
    assert Status.OK in statuses
    assert statuses & {Status.OOM_START, Status.CRASHED}
    assert statuses <= {Status.OK, Status.BOUNDED, Status.OOM_START, Status.CRASHED}
    best = tmp_path / "out" / "fake" / "best"
    assert (best / "run.sh").exists()
    assert json.loads((best / "plan.json").read_text())["serve"]
    assert (tmp_path / "out" / "fake" / "report.html").exists()
    assert not [line for line in members(os.getpid()) if "openai_server" in line]
