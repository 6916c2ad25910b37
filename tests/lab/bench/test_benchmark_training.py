"""The page of the benchmark of training on one GPU, from a recorded file."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.h200_training import merged, page


def side(rate: float) -> dict[str, Any]:
    return {"config": {"precision": "fp32"}, "tokens_per_s": [rate, rate + 1], "step_ms": [9.0], "peak_mem_gib": [3.0], "loss_after": []}


def recorded(best: dict[str, Any] | None, interval: list[float | None]) -> dict[str, Any]:
    trial = {"number": 0, "config": {}, "status": "ok", "value": 1.0, "spent": {}, "cost_s": 20.0, "repeat": 0, "reason": ""}
    study = {
        "metric": "tokens_per_s", "verdict": "gain", "reason": "better in all rounds", "gain": 2.0, "interval": interval,
        "workload": {"model": "gpt-216m"}, "software": {}, "default": side(100.0), "best": best,
        "trials": [trial, {**trial, "status": "oom_run"}, {**trial, "repeat": 1}],
    }  # fmt: skip
    return {"gpu": "a GPU", "torch": "2.11", "studies": {"pretraining": study}}


def test_the_page_has_both_sides_with_spread() -> None:
    text = page(recorded({**side(200.0), "config": {"precision": "bf16"}}, [1.9, 2.1]))
    assert "Gain 2.00x (1.90 to 2.10)" in text
    assert "| best found | 200.5 | 200, 201 | 9 | 3 | - |" in text
    assert "Changed: `precision` bf16" in text
    assert "2 profiles, 1 failed; 60 s of measuring" in text


def test_a_study_without_an_answer_still_gives_a_page() -> None:
    text = page(recorded(None, [None, None]))
    assert "No interval" in text
    assert "Changed: nothing" in text


def test_depths_that_failed_are_named() -> None:
    good = {"status": "ok", "step_ms": 100.0, "peak_mem_gib": 5.0, "warm_up_s": 1.0, "measure_s": 9.0}
    rows = [
        {"config": {"precision": "bf16"}, "model": "gpt-1b", "depths": [2, 6], "whole": good, "extrapolated": {**good, "step_ms": 110.0}},
        {"config": {}, "model": "gpt-1b", "depths": [2, 6], "whole": {"status": "oom_run"}, "extrapolated": good},
    ]
    text = page({**recorded(side(200.0), [1.0, 3.0]), "depths": rows})
    assert "gpt-1b from 2 and 6 layers" in text
    assert "| precision bf16 | 100.0 | 110.0 | +10.0% |" in text
    assert "| default | oom_run | ok |" in text


def test_records_of_one_machine_make_one_page() -> None:
    first, second = recorded(side(200.0), [1.9, 2.1]), recorded(side(200.0), [2.9, 3.1])
    second["studies"] = {"megatron": second["studies"]["pretraining"]}
    both = merged([{**first, "depths": [1]}, second])
    assert list(both["studies"]) == ["pretraining", "megatron"]
    assert both["depths"] == [1], "a run without them does not take them away"
    with pytest.raises(SystemExit, match="different machines"):
        merged([first, {**second, "gpu": "another"}])
