"""`autoscout drift` says whether a new study would pay, and cannot tell where the simulator has no ground."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from _cli_program import run
from autoscout.study.campaign import build_campaign
from autoscout.study.drift import Pays, drift_of
from autoscout.study.setup import Setup, prepare
from autoscout.traffic.description import Traffic, TrafficWindow


def service(prompt: float, answer: float, seed: int) -> Traffic:
    random = np.random.default_rng(seed)
    drawn = zip(random.lognormal(math.log(prompt), 0.9, 400), random.lognormal(math.log(answer), 1.0, 400), strict=True)
    pairs = tuple((max(1, int(one)), max(1, int(other))) for one, other in drawn)
    return Traffic(source="a service", windows=(TrafficWindow(name="all", requests=1000.0, seconds=300.0, pairs=pairs),))


def campaign(traffic: Traffic, **changes: Any) -> dict[str, Any]:
    data = {
        "system": "vllm",
        "workload": {"model": "llama-3.1-8b"},
        "traffic": traffic.to_json(),
        "hardware": {"gpus": "1xH100"},
        "goal": {"slo": ["p95_ttft_ms<=2000", "p95_tpot_ms<=50"]},
    }
    return {**data, **changes}


def study(traffic: Traffic, **changes: Any) -> Setup:
    return prepare(build_campaign(campaign(traffic, **changes), where="test"))


def tuned(setup: Setup) -> dict[str, Any]:
    """What a study would hand over: what is predicted to be best on other requests of the same service."""
    found = drift_of(setup, setup.default.to_json(), service(800, 80, 2))
    assert found.config is not None
    return dict(found.config)


def test_silent_while_the_service_stays() -> None:
    setup = study(service(800, 80, 1))
    found = drift_of(setup, tuned(setup), service(800, 80, 3))
    assert found.pays is Pays.NO
    assert found.line.startswith("no: ")


def test_speaks_when_the_service_has_become_another() -> None:
    setup = study(service(800, 80, 1))
    found = drift_of(setup, setup.default.to_json(), service(2000, 10, 2))
    assert found.pays is Pays.YES
    assert found.gain is not None
    assert found.gain > 1.2
    assert "simulated" in found.line
    assert found.config is not None
    after = drift_of(setup, found.config, service(2000, 10, 2))  # with what it names, nothing more is to gain
    assert after.pays is Pays.NO


@pytest.mark.parametrize(
    ("changes", "answer", "says"),
    [
        ({"workload": {"model": "qwen3-30b-a3b"}, "hardware": {"gpus": "2xH100"}}, {}, "mixture of experts"),
        ({}, {"prefill_gpus": 1}, "GPUs of their own"),
        ({}, {"speculative_method": "ngram"}, "speculative decoding"),
    ],
)
def test_cannot_tell_where_the_simulator_has_no_ground(changes: dict[str, Any], answer: dict[str, Any], says: str) -> None:
    setup = study(service(800, 80, 1), **changes)
    found = drift_of(setup, {**setup.default.to_json(), **answer}, service(2000, 10, 2))
    assert found.pays is Pays.UNKNOWN
    assert says in found.line


def folder_of(home: Path, answer: dict[str, Any] | None = None, **changes: Any) -> Path:
    """A result folder as far as `drift` reads it."""
    setup = study(service(800, 80, 1), **changes)
    home.mkdir()
    (home / "campaign.yaml").write_text(yaml.dump(setup.spec))
    (home / "trials.jsonl").write_text("")
    (home / "report.json").write_text(json.dumps({"answer": answer or tuned(setup), "default": None}))
    return home


def test_verb_has_an_exit_code_for_each_answer(tmp_path: Path) -> None:
    folder_of(tmp_path / "study")
    service(800, 80, 3).write(tmp_path / "same.json")
    service(2000, 10, 2).write(tmp_path / "other.json")
    same = run(tmp_path, "drift", "study", "--traffic", "same.json")
    assert (same.returncode, same.stdout.count("\n")) == (0, 1), same.stderr
    folder_of(tmp_path / "untuned", answer=study(service(800, 80, 1)).default.to_json())
    other = run(tmp_path, "drift", "untuned", "--traffic", "other.json", "--json")
    assert other.returncode == 10, other.stderr
    assert json.loads(other.stdout)["pays"] == "yes"
    folder_of(tmp_path / "moe", answer={"max_num_seqs": 64}, workload={"model": "qwen3-30b-a3b"}, hardware={"gpus": "2xH100"})
    assert run(tmp_path, "drift", "moe", "--traffic", "other.json").returncode == 11
    assert run(tmp_path, "drift", "moe", "--traffic", "nothing.json").returncode == 2
    assert run(tmp_path, "drift", "nowhere", "--traffic", "other.json").returncode == 2
