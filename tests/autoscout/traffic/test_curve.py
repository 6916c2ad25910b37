"""`autoscout curve` measures configurations over loads, with intervals, and ends with a code for CI."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest

from _cli_program import run
from autoscout.core.config import Config
from autoscout.core.trial import Measurement, Status
from autoscout.report.curve import best_per_gpu, curve_picture
from autoscout.study.curve import CurveLoad, MeasuredPoint

SERVER = [sys.executable, "-m", "autoscout.testing.openai_server", "--vocab-size", "200000"]
FIELDS = ["model=llama-3.1-8b", f"engine_command={json.dumps(SERVER)}", "input_tokens=16", "output_tokens=8"]
FLAGS = [word for field in FIELDS for word in ("-w", field)]


def point(name: str, values: list[float], gpus: int = 1) -> MeasuredPoint:
    measured = [Measurement(status=Status.OK, metrics={"output_throughput": value, "median_tpot_ms": 20.0}) for value in values]
    return MeasuredPoint(name=name, config=Config({}), load=CurveLoad(concurrency=4), gpus=gpus, task={}, measurements=tuple(measured))


def test_interval_and_users_of_a_point() -> None:
    one = point("default", [100.0, 110.0, 121.0], gpus=2)
    assert one.per_gpu is not None
    mean, low, high = one.per_gpu
    assert mean == pytest.approx(55.0)
    assert math.log(high / mean) == pytest.approx(math.log(mean / low)) == pytest.approx(4.303 * 0.0953 / math.sqrt(3), rel=0.01)
    assert one.per_user == pytest.approx(50.0)
    row = one.to_json()
    assert (row["median_intvty"], row["median_tpot"], row["output_tput_per_gpu"]) == pytest.approx((50.0, 0.02, 55.17), rel=0.001)
    assert point("x", [5.0]).to_json()["output_tput_per_gpu_interval"] is None


def test_best_of_the_last_configuration() -> None:
    points = [point("default", [300.0]), point("best", [100.0]), point("best", [200.0])]
    best = best_per_gpu(points)
    assert best is not None
    assert best[0] == pytest.approx(200.0)
    assert curve_picture(points).count("<polyline") == 2


@pytest.mark.slow
def test_curve_of_a_server(tmp_path: Path) -> None:
    flags = ["curve", "vllm", *FLAGS, "--gpus", "0", "--concurrency", "1,4", "--rounds", "2", "--set", "max_num_seqs=64"]
    done = run(tmp_path, *flags, "-o", "rows.json", "--picture", "curve.svg", "--fail-below", "1e9")
    assert done.returncode == 3, done.stderr
    assert "tokens/s per GPU are below" in done.stderr
    rows = json.loads((tmp_path / "rows.json").read_text())["points"]
    assert [(row["name"], row["conc"], row["rounds"], row["isl"]) for row in rows] == [("pinned", 1, 2, 16), ("pinned", 4, 2, 16)]
    assert all(row["config"]["max_num_seqs"] == 64 for row in rows)
    assert all(row["output_tput_per_gpu_interval"][0] <= row["output_tput_per_gpu"] for row in rows)
    assert "<svg" in (tmp_path / "curve.svg").read_text()


@pytest.mark.slow
def test_curve_of_a_study_has_its_default_and_its_best(tmp_path: Path) -> None:
    tuned = run(
        tmp_path, "tune", "vllm", *FLAGS, "-w", "concurrency=2", "-w", "requests=8", "--gpus", "0", "-e", "s",
        "--max-trials", "2", "--rounds", "0", "--simulator", "none", "--json",
    )  # fmt: skip
    assert tuned.returncode == 0, tuned.stderr
    report = tmp_path / "autoscout_results" / "s" / "report.json"
    document = json.loads(report.read_text())
    document["answer"] = {**document["answer"], "max_num_seqs": 32}  # as if that had won
    report.write_text(json.dumps(document))
    done = run(tmp_path, "curve", "autoscout_results/s", "--rates", "20", "--rounds", "1", "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["points"]
    assert [(row["name"], row["request_rate"]) for row in rows] == [("default", 20), ("best", 20)]
    assert rows[1]["config"]["max_num_seqs"] == 32


def test_wrong_loads_are_refused(tmp_path: Path) -> None:
    done = run(tmp_path, "curve", "vllm", *FLAGS, "--concurrency", "1,x,0")
    assert done.returncode == 2
    assert done.stderr.count("whole numbers above 0") == 2
    assert "Give one of them" in run(tmp_path, "curve", "vllm", "--concurrency", "1", "--rates", "1").stderr
