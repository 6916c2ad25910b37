"""What finished measurements mean: recorded logs of the real engine, and results that cannot be true."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from llamacpp_running import fixed_task

from autoscout.backends.llamacpp import LlamaCppBackend
from autoscout.core.launch import Completed
from autoscout.core.trial import Measurement, Status
from autoscout.load.plan import LOG, RESULT, STAGE

GOLDEN = Path(__file__).parents[2] / "golden" / "llamacpp"
TASK = fixed_task(model="random-tiny", concurrency=2, requests=2, output_tokens=4, repeats=1)
GOOD: dict[str, Any] = {
    "metrics": {
        "output_throughput": 80.0,
        "total_token_throughput": 240.0,
        "request_throughput": 20.0,
        "completed": 2.0,
        "mean_ttft_ms": 3.5,
    },
    "samples": {
        "output_throughput": [70.0, 80.0, 90.0],
        "total_token_throughput": [1.0, 2.0, 3.0],
        "request_throughput": [1.0, 2.0, 3.0],
        "completed": [2.0, 2.0, 2.0],
    },
}


def parsed(returncode: int | None = 0, stage: str = "done", result: Any = None, log: str = "", **more: Any) -> Measurement:
    text = result if isinstance(result, str) else json.dumps(result)
    outputs = {STAGE: f"{stage}\n", LOG: log, **({} if result is None else {RESULT: text})}
    return LlamaCppBackend().parse(Completed(returncode=returncode, outputs=outputs, **more), TASK)


def refused_start(log: str) -> Measurement:
    failure = {"failure": "start", "reason": "the server ended with exit code 1 while starting", "returncode": 1}
    return parsed(3, "starting", failure, (GOLDEN / f"{log}.log").read_text())


def test_a_good_result() -> None:
    done = parsed(result=GOOD)
    assert done.ok
    assert done.metrics["output_throughput"] == 80.0
    assert done.samples["output_throughput"] == (70.0, 80.0, 90.0)


@pytest.mark.parametrize(
    ("log", "status", "why"),
    [
        ("v_cache_without_flash", Status.INVALID, "quantized V cache requires flash_attn"),
        ("k_cache_block_size", Status.INVALID, "does not divide n_embd_head_k"),
        ("too_many_slots", Status.INVALID, "n_seq_max must be <= 256"),
        ("kv_cache_too_large", Status.OOM_START, "failed to allocate buffer"),
        ("model_missing", Status.CRASHED, "failed to open GGUF file"),
        ("model_cut_off", Status.CRASHED, "not within the file bounds"),
        ("model_garbage", Status.CRASHED, "invalid magic"),
    ],
)
def test_recorded_refusals_of_the_engine(log: str, status: Status, why: str) -> None:
    done = refused_start(log)
    assert done.status is status
    assert why in done.reason
    assert done.log_tail


def test_a_start_that_fails_without_a_known_reason() -> None:
    done = parsed(3, "starting", {"failure": "start", "reason": "the server ended", "returncode": 1}, "something new")
    assert (done.status, done.reason) == (Status.CRASHED, "the server ended: something new")


def test_an_assertion_of_the_engine_is_named() -> None:
    failure = {"failure": "ended", "reason": "the server ended with exit code -6", "returncode": -6}
    done = parsed(3, "starting", failure, (GOLDEN / "assertion.log").read_text())
    assert done.status is Status.CRASHED
    assert "SIGABRT" in done.reason
    assert "GGML_ASSERT" in done.reason


@pytest.mark.parametrize(
    ("stage", "status"),
    [("preparing", Status.OOM_START), ("starting", Status.OOM_START), ("checking", Status.OOM_RUN), ("measuring", Status.OOM_RUN)],
)
def test_out_of_memory_is_dated(stage: str, status: Status) -> None:
    assert parsed(-9, stage, out_of_memory=True).status is status
    ended = {"failure": "ended", "reason": "the server ended", "returncode": -6}
    assert parsed(3, stage, ended, "terminate called after throwing an instance of 'std::bad_alloc'").status is status
    assert parsed(3, stage, {"failure": "crashed", "reason": "1 of 4 requests failed: status 500: failed to allocate"}).status is status


def test_ends_by_other_hands() -> None:
    assert parsed(None, "measuring", timed_out=True, wall_s=180.2).reason == "still measuring after 180 s"
    assert parsed(None, "measuring", cancelled=True).status is Status.ABORTED
    ended = {"failure": "ended", "reason": "the server ended", "returncode": -11}
    assert "SIGSEGV while warming" in parsed(3, "warming", ended).reason
    assert "exit code 1: ValueError: no" in parsed(1, "checking", stderr="Traceback\n  x\nValueError: no\n").reason
    assert "No such file" in parsed(None, "", error="No such file or directory: python").reason


@pytest.mark.parametrize("kind", ["invalid", "wrong_output", "crashed"])
def test_failures_that_it_noticed_itself(kind: str) -> None:
    done = parsed(3, "measuring", {"failure": kind, "reason": "because"})
    assert (done.status.value, done.reason) == (kind, "because")


def test_an_unknown_kind_of_failure_is_a_crash() -> None:
    assert parsed(3, "measuring", {"failure": "ok", "reason": ""}).status is Status.CRASHED


def test_a_setting_the_engine_ignored_is_not_measured() -> None:
    done = parsed(result=GOOD, log="W warning: failed to mlock 30117888-byte buffer: Cannot allocate memory")
    assert done.status is Status.INVALID
    assert "mlock" in done.reason


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"metrics": {}}, "without any metric"),
        ({"metrics": {**GOOD["metrics"], "output_throughput": 0.0}}, "cannot be"),
        ({"metrics": {**GOOD["metrics"], "mean_ttft_ms": -1.0}}, "cannot be"),
        ({"metrics": {**GOOD["metrics"], "mean_ttft_ms": float("nan")}}, "not numbers"),
        ({"metrics": {**GOOD["metrics"], "mean_ttft_ms": "fast"}}, "not numbers"),
        ({"samples": {**GOOD["samples"], "output_throughput": [float("inf")] * 3}}, "not numbers"),
        ({"samples": {**GOOD["samples"], "completed": [2.0, 2.0, -1.0]}}, "cannot be"),
        ({"metrics": [1, 2]}, "not numbers"),
    ],
)
def test_success_with_a_wrong_answer(change: dict[str, Any], why: str) -> None:
    done = parsed(result={**GOOD, **change})
    assert done.status is Status.WRONG_OUTPUT
    assert why in done.reason


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", "null", "garbage \x00", '{"metrics": '])
def test_a_result_that_cannot_be_read(text: str) -> None:
    assert parsed(result=text).status is Status.WRONG_OUTPUT
    assert parsed(result=None).reason == "left no result"


def test_a_result_that_was_stopped_early() -> None:
    spent = {"start_s": 2.0, "warm_up_s": 0.5, "measure_s": 1.0}
    metrics = {"output_throughput": 70.0, "start_s": 2.0}
    done = parsed(result={"metrics": metrics, "samples": {}, "bounds": {"output_throughput": 75.0}, "reason": "why", "spent": spent})
    assert (done.status, done.bounds, done.reason) == (Status.BOUNDED, {"output_throughput": 75.0}, "why")
    assert done.metrics["output_throughput"] == 70.0
    assert done.spent == spent


def test_a_failure_says_what_it_spent() -> None:
    done = parsed(3, "checking", {"failure": "wrong_output", "reason": "r", "spent": {"start_s": 2.0}})
    assert done.status is Status.WRONG_OUTPUT
    assert done.spent == {"start_s": 2.0}
