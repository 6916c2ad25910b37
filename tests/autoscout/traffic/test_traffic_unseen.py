"""Windows that a study does not judge on: how far the answer and the default stand from each limit there, predicted."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_traffic_drift import service, study

from _cli_program import run
from _gpus import write_gpus
from autoscout.analysis.unseen import UnseenWindows
from autoscout.core.config import Config
from autoscout.study.setup import Setup
from autoscout.study.unseen import MOST_WINDOWS, unseen_of
from autoscout.traffic.description import Traffic, TrafficWindow

SERVER = [sys.executable, "-m", "autoscout.testing.openai_server", "--vocab-size", "200000"]


def window(name: str, prompt: float, answer: float, *, held_out: bool = True) -> TrafficWindow:
    return service(prompt, answer, 1).windows[0].model_copy(update={"name": name, "held_out": held_out})


def two_hours(*others: TrafficWindow, **changes: Any) -> Setup:
    judged = (window("day", 800, 80, held_out=False), window("evening", 700, 60, held_out=False))
    return study(Traffic(source="mine", windows=(*judged, *others)), **changes)


def looked_at(setup: Setup, **changes: Any) -> UnseenWindows:
    found = unseen_of(setup, {"default": setup.default, "answer": Config({**setup.default, **changes})})
    assert found is not None
    return found


def test_lighter_hours_hold_the_rate_and_heavier_ones_do_not() -> None:
    found = looked_at(two_hours(window("night", 200, 20), window("batch", 4000, 100)), max_num_batched_tokens=1024)
    assert {row.name for row in found.rows} == {"default", "answer"}
    for row in found.rows:
        assert row.rate is not None
        assert row.capacity is not None
        assert row.capacity > row.rate if row.window == "night" else row.capacity < row.rate
    for name in ("default", "answer"):
        held = {one: all(row.holds for row in found.rows if (row.name, row.window) == (name, one)) for one in ("night", "batch")}
        assert held == {"night": True, "batch": False}
    assert found.sentence.startswith("2 windows not judged on (simulated, error ")
    assert found.sentence.count("breaks a limit in 1 of 2 at ") == 2
    assert "in batch, where" in found.sentence
    assert UnseenWindows.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_study_at_one_rate_is_looked_at_there() -> None:
    setup = two_hours(window("night", 200, 20), workload={"model": "llama-3.1-8b", "request_rate": 2, "requests": 200})
    found = looked_at(setup)
    assert {row.rate for row in found.rows} == {None}
    assert all(row.holds and row.share is not None and 0 < row.share < 1 for row in found.rows)
    assert "default keeps all limits in 1 (" in found.sentence
    assert "% of it in night" in found.sentence


def test_limits_that_hold_at_no_rate_are_broken() -> None:
    found = looked_at(two_hours(window("night", 200, 20), goal={"slo": ["p95_ttft_ms<=0.01"]}))
    assert found.rows
    assert not any(row.holds for row in found.rows)
    assert "no rate keeps it in night" in found.sentence


def test_few_of_many_windows_are_simulated() -> None:
    found = looked_at(two_hours(*(window(f"hour {hour}", 300 + 100 * hour, 40) for hour in range(9))))
    assert found.held_out == 9
    assert len({row.window for row in found.rows}) == MOST_WINDOWS
    assert "hour 8" in {row.window for row in found.rows}  # the busiest


def test_nothing_to_say_without_such_windows_or_limits() -> None:
    setup = two_hours()
    assert unseen_of(setup, {"default": setup.default}) is None
    setup = two_hours(window("night", 200, 20), goal={"metric": "output_throughput"}, workload={"model": "llama-3.1-8b", "concurrency": 4})
    assert unseen_of(setup, {"default": setup.default}) is None


def test_cannot_tell_where_the_simulator_has_no_ground() -> None:
    found = looked_at(two_hours(window("night", 200, 20)), prefill_gpus=1)
    assert not found.rows
    assert "cannot tell" in found.sentence
    assert UnseenWindows.from_json(found.to_json()) == found


@pytest.mark.slow
def test_study_says_it_in_the_terminal_on_the_page_and_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("AUTOSCOUT_LEASES", str(tmp_path / "leases"))
    monkeypatch.setenv("AUTOSCOUT_FAKE_GPUS", str(write_gpus(tmp_path / "gpus.json", [])))
    judged, unseen = ((20, 8), (30, 6)), ((40, 16),)
    windows = (
        TrafficWindow(name="day", requests=100.0, seconds=50.0, pairs=judged),
        TrafficWindow(name="night <b>", requests=100.0, seconds=50.0, pairs=unseen, held_out=True),
    )
    data = {
        "system": "vllm",
        "traffic": Traffic(source="mine", windows=windows).to_json(),
        "workload": {"model": "llama-3.1-8b", "engine_command": SERVER, "concurrency": 4, "requests": 16},
        "hardware": {"gpus": "1xH100", "cores": 2},
        "goal": {"slo": ["p95_ttft_ms<=5000"]},
        "budget": {"trials": 2},
        "finals": {"rounds": 0},
        "simulate": {"simulator": "none"},
    }
    (tmp_path / "campaign.yaml").write_text(yaml.dump(data))
    done = run(tmp_path, "tune", "campaign.yaml", "-o", "results", "-e", "mine")
    assert done.returncode == 0, done.stderr
    assert "1 window not judged on (simulated, error " in done.stdout
    report = json.loads((tmp_path / "results" / "mine" / "report.json").read_text())["unseen_windows"]
    assert report["fidelity"] == "simulated"
    assert {(row["name"], row["window"]) for row in report["rows"]} >= {("default", "night <b>")}
    assert all(row["holds"] and 0 < row["share"] < 1 for row in report["rows"])
    page = (tmp_path / "results" / "mine" / "report.html").read_text()
    assert "Windows not judged on" in page
    assert "simulated, not measured" in page
    assert "night &lt;b&gt;" in page
