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
    "requests": 6,
    "output_tokens": 24,
}


def parsed(returncode: int | None = 0, stage: str = "done", result: Any = None, stderr: str = "", **more: Any) -> Measurement:
    text = result if isinstance(result, str) else json.dumps(result)
    outputs = {"stage.txt": f"{stage}\n", **({} if result is None else {"bench.json": text})}
    return LlamaCppBackend().parse(Completed(returncode=returncode, outputs=outputs, stderr=stderr, **more), TASK)


def refused_start(log: str) -> Measurement:
    failure = {"failure": "start", "reason": "the engine did not start: Failed to init server, please check the input params."}
    return parsed(3, "loading", failure, (GOLDEN / f"{log}.log").read_text())


def test_a_good_result() -> None:
    done = parsed(result=GOOD)
    assert done.ok
    assert done.metrics["output_throughput"] == 80.0
    assert done.samples["output_throughput"] == (70.0, 80.0, 90.0)
    assert done.conditions["repeats"] == 3


def test_a_repeat_that_was_cut_short() -> None:
    fewer = {**GOOD, "samples": {**GOOD["samples"], "completed": [2.0, 2.0, 1.0]}, "output_tokens": 20}
    assert parsed(result=fewer).ok, "a crawling engine gets fewer requests"


@pytest.mark.parametrize(
    ("log", "status", "why"),
    [
        ("v_cache_without_flash", Status.INVALID, "quantized V cache requires flash_attn"),
        ("k_cache_block_size", Status.INVALID, "does not divide n_embd_head_k"),
        ("too_many_slots", Status.INVALID, "n_seq_max must be <= 256"),
        ("kv_cache_too_large", Status.OOM_START, "not enough memory"),
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
    done = parsed(3, "loading", {"failure": "start", "reason": "the engine did not start: ?"}, "something new")
    assert (done.status, done.reason) == (Status.CRASHED, "the engine did not start: ?")


def test_an_assertion_of_the_engine_is_named() -> None:
    done = parsed(-6, "loading", None, (GOLDEN / "assertion.log").read_text())
    assert done.status is Status.CRASHED
    assert "SIGABRT" in done.reason
    assert "GGML_ASSERT" in done.reason


@pytest.mark.parametrize(
    ("stage", "status"),
    [("preparing", Status.OOM_START), ("loading", Status.OOM_START), ("checking", Status.OOM_RUN), ("measuring", Status.OOM_RUN)],
)
def test_out_of_memory_is_dated(stage: str, status: Status) -> None:
    assert parsed(-9, stage, out_of_memory=True).status is status
    assert parsed(-6, stage, stderr="terminate called after throwing an instance of 'std::bad_alloc'").status is status
    assert (
        parsed(3, stage, {"failure": "crashed", "reason": "the server refused a request: failed to allocate (code 500)"}).status is status
    )


def test_ends_by_other_hands() -> None:
    assert parsed(None, "measuring", timed_out=True, wall_s=180.2).reason == "still measuring after 180 s"
    assert parsed(None, "measuring", cancelled=True).status is Status.ABORTED
    assert "SIGSEGV while warming" in parsed(-11, "warming").reason
    assert "SIGKILL" in parsed(137, "warming").reason, "as a shell reports it"
    assert "exit code 1 while checking: ValueError: no" in parsed(1, "checking", stderr="Traceback\n  x\nValueError: no\n").reason
    assert parsed(None, "", error="No such file or directory: python").reason.startswith("No such file")


@pytest.mark.parametrize("kind", ["invalid", "wrong_output", "crashed"])
def test_failures_that_it_noticed_itself(kind: str) -> None:
    done = parsed(3, "measuring", {"failure": kind, "reason": "because"})
    assert (done.status.value, done.reason) == (kind, "because")


def test_an_unknown_kind_of_failure_is_a_crash() -> None:
    assert parsed(3, "measuring", {"failure": "ok", "reason": ""}).status is Status.CRASHED


def test_a_setting_the_engine_ignored_is_not_measured() -> None:
    done = parsed(result=GOOD, stderr="W warning: failed to mlock 30117888-byte buffer: Cannot allocate memory")
    assert done.status is Status.INVALID
    assert "mlock" in done.reason


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"metrics": {}}, "without output_throughput"),
        ({"metrics": {**GOOD["metrics"], "output_throughput": 0.0}}, "cannot be"),
        ({"metrics": {**GOOD["metrics"], "mean_ttft_ms": -1.0}}, "cannot be"),
        ({"metrics": {**GOOD["metrics"], "mean_ttft_ms": float("nan")}}, "not a number"),
        ({"metrics": {**GOOD["metrics"], "mean_ttft_ms": "fast"}}, "not a number"),
        ({"samples": {}}, "without output_throughput"),
        ({"samples": {**GOOD["samples"], "output_throughput": [float("inf")] * 3}}, "not a number"),
        ({"samples": {**GOOD["samples"], "completed": [2.0, 2.0, 3.0]}}, "of 2 in each repeat"),
        ({"samples": {**GOOD["samples"], "completed": [2.0, 2.0, 0.0]}}, "of 2 in each repeat"),
        ({"output_tokens": 23}, "23 tokens where 24"),
        ({"output_tokens": None}, "None tokens where 24"),
        ({"metrics": [1, 2]}, "without metrics"),
    ],
)
def test_success_with_a_wrong_answer(change: dict[str, Any], why: str) -> None:
    done = parsed(result={**GOOD, **change})
    assert done.status is Status.WRONG_OUTPUT
    assert why in done.reason


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", "null", "garbage \x00", '{"metrics": '])
def test_a_result_that_cannot_be_read(text: str) -> None:
    assert parsed(result=text).status is Status.WRONG_OUTPUT
    assert parsed(result=None).reason == "ended without an error, but left no result"


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
