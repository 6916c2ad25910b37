"""`benchmarks.unseen_windows`: its service, and a page of figures that are known."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))

from benchmarks import unseen_windows  # noqa: E402

LIMITS = ["p95_ttft_ms<=2000", "p95_tpot_ms<=50"]


def test_the_service_judges_on_some_windows_and_holds_out_others() -> None:
    traffic = unseen_windows.service(1.0)
    assert [window.name for window in traffic.judged] == ["morning", "afternoon"]
    assert [window.name for window in unseen_windows.part(traffic, judged=False).judged] == ["noon", "evening", "night"]
    by_name = {window.name: window for window in traffic.windows}
    assert by_name["evening"].mean_output > 3 * by_name["morning"].mean_output
    assert by_name["night"].mean_input > 1.5 * by_name["afternoon"].mean_input
    small = unseen_windows.service(0.1)
    assert small.judged[0].mean_input == pytest.approx(0.1 * traffic.judged[0].mean_input, rel=0.05)
    assert unseen_windows.configs(["parallel=2,batch=64"]) == {"default": {}, "parallel=2,batch=64": {"parallel": "2", "batch": "64"}}


def test_a_page_sets_what_was_measured_next_to_what_was_simulated() -> None:
    held = {f"{metric}_w{number + 1}": values[number] for metric, values in
            {"p95_ttft_ms": (1000.0, 3000.0, 500.0), "p95_tpot_ms": (25.0, 25.0, 25.0)}.items() for number in range(3)}  # fmt: skip
    capacities = {f"capacity_rps_w{number}": 10.0 * number for number in (1, 2, 3)}
    about = {"name": "default", "rate": 12.0, "capacity": 11.0}
    told = [{**about, "window": window, "limit": "p95_ttft_ms<=2000", "value": 1500.0, "bound": 2000.0, "holds": True}
            for window in ("noon", "evening")]  # fmt: skip
    document = {
        "system": "vllm",
        "model": "m",
        "machine": "NVIDIA X",
        "limits": LIMITS,
        "command": "c",
        "measured": {"default": {"load_average": 1.0, "rate": 12.0, "held": held, "capacities": capacities}},
        "simulated": {"rows": told},
    }
    text = unseen_windows.page([document])
    assert "| default | evening | 12 | **150%** (75% simulated) | 50% | 20 (11 simulated) |" in text
    assert "| default | night | 12 | 25% | 50% | 30 |" in text
    assert "predicted rightly in 1 of 2 cases; of those that broke, 1 were not predicted" in text
    nothing = {**document, "simulated": {"unknown": "no simulator knows llamacpp"}}
    assert "1 of 3 break a limit" in unseen_windows.page([nothing])
