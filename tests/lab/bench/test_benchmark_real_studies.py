"""`benchmarks.postgres` and `benchmarks.llamacpp`: their pages say what the studies found."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from autoscout.backends.function import FunctionBackend
from autoscout.core.config import Config
from autoscout.core.seeds import stream
from autoscout.space.simple import simple_space
from autoscout.study.assemble import run
from autoscout.study.campaign import build_campaign
from autoscout.study.setup import prepare

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))

from benchmarks import llamacpp, postgres  # noqa: E402
from benchmarks._real_studies import figures  # noqa: E402


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    draw = stream(1, "tests", "real studies")

    def time_s(config: Config) -> float:
        return 10.0 / (1 + int(str(config["x"]))) * float(1 + 0.01 * draw.standard_normal())

    data = {
        "system": "function",
        "workload": {"metrics": ["time_s"], "deterministic": False},
        "goal": {"metric": "time_s", "direction": "minimize"},
        "budget": {"trials": 8},
        "search": {"warm_start": False},
        "simulate": {"simulator": "none"},
        "measure": {"dirty_repeats": 0},
    }
    space = simple_space({"x": range(4), "inert": range(2)})
    return figures(run(prepare(build_campaign(data, where="test"), FunctionBackend(space, time_s))))


def test_figures_of_a_study(found: dict[str, Any]) -> None:
    assert found["verdict"] == "gain"
    assert found["gain"]["low"] < 4.0 < found["gain"]["high"]
    assert [change["knob"] for change in found["changes"]] == ["x"]
    assert [one["source"] for one in found["contributions"]] == ["measured"]
    assert found["trials"]["search"] >= 8
    assert found["trials"]["final"] == found["disturbed"]["trials"] > 0


def test_the_page_of_postgres(found: dict[str, Any]) -> None:
    text = postgres.page({"version": "postgres 15", "cores": 2, "all": found, "safe": {**found, "changes": [], "contributions": []}})
    assert f"{found['gain']['ratio']:.3f}x" in text
    assert "handed over: 1 of 10 knobs changed, the effect of 1 of them measured" in text
    assert "| `x` | 0 | 3 |" in text


def test_intervals_overlap_or_not(found: dict[str, Any]) -> None:
    other = {**found, "gain": {**found["gain"], "low": 8.0, "high": 9.0}}
    assert llamacpp.overlap([found, found]) is True
    assert llamacpp.overlap([found, other]) is False
    assert llamacpp.overlap([found, {**found, "gain": {**found["gain"], "low": None, "high": None}}]) is None
    assert "do not overlap" in llamacpp.page([{**run, "load": 9.3} for run in (found, other)], "6m")
    assert llamacpp.KEPT in (ROOT / "docs" / "results" / "llamacpp.md").read_text()
