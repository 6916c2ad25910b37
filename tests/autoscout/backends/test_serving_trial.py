"""The trial program against the fake engine: metrics of every goal, and every fault told apart with nothing left running."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from serving_trials import ENGINE, plan, run

from autoscout.core.launch import Completed, Launch
from autoscout.core.task import Direction, Limit
from autoscout.core.to_beat import ToBeat
from autoscout.core.trial import SPENT, Status
from autoscout.load.measure import is_repeat_due
from autoscout.load.outcome import outcome
from autoscout.load.plan import COMMAND, LATENCIES, LOG, RESULT, STAGE, STATISTICS, Load, TrialPlan

SLO = ["p95_ttft_ms<=200", "p95_tpot_ms<=50"]


def test_a_closed_loop(tmp_path: Path) -> None:
    found, _ = run(plan(), tmp_path)
    assert found.status is Status.OK, found.reason
    assert found.metrics["completed"] == 40
    assert found.metrics["failed"] == 0
    assert found.metrics["output_tokens"] == 40 * 8
    assert found.metrics["input_tokens"] == 40 * 32
    assert {f"{name}_{latency}" for latency in LATENCIES for name in STATISTICS} <= found.metrics.keys()
    assert 0 < found.metrics["p50_ttft_ms"] <= found.metrics["p99_ttft_ms"] < found.metrics["p99_e2el_ms"]
    assert set(found.spent) == set(SPENT)


@pytest.mark.parametrize("arrival", ["constant", "poisson", "burst"])
def test_goodput_at_a_rate(tmp_path: Path, arrival: str) -> None:
    load = {"arrival": arrival, "request_rate": 50.0, "concurrency": 0}
    found, _ = run(plan(load=load, goal={"kind": "goodput", "slo": SLO}), tmp_path)
    assert found.status is Status.OK, found.reason
    assert 0 < found.metrics["goodput"] <= found.metrics["request_throughput"]


def test_goodput_counts_only_requests_that_keep_the_slo(tmp_path: Path) -> None:
    load = {"arrival": "constant", "request_rate": 50.0, "concurrency": 0}
    found, _ = run(plan(load=load, goal={"kind": "goodput", "slo": ["p95_ttft_ms<=0.01"]}), tmp_path)
    assert found.metrics["goodput"] == 0
    assert found.metrics["completed"] == 40


def test_offline(tmp_path: Path) -> None:
    found, _ = run(plan("--max-num-seqs", "8", load={"concurrency": 0}, goal={"kind": "offline"}), tmp_path)
    assert found.metrics["completed"] == 40
    assert found.metrics["p99_ttft_ms"] > found.metrics["p50_tpot_ms"]  # the last ones waited for the first


def test_the_chat_endpoint(tmp_path: Path) -> None:
    talks = [{"conversations": [{"from": "human", "value": "how do you do?"}, {"from": "gpt", "value": "x" * 32}]}]
    (tmp_path / "talks.json").write_text(json.dumps(talks))
    load = {"workload": "sharegpt", "file": str(tmp_path / "talks.json"), "endpoint": "chat"}
    found, _ = run(plan(load=load), tmp_path)
    assert found.status is Status.OK, found.reason
    assert found.metrics["output_tokens"] == 40 * 8
    assert found.metrics["input_tokens"] == 40 * 5  # four words and the fresh number


def test_too_few_requests_for_a_percentile_are_told(tmp_path: Path) -> None:
    given = plan(goal={"kind": "latency", "metric": "p99_ttft_ms", "slo": ["p95_itl_ms<=100"]})
    found, _ = run(given, tmp_path)
    assert found.conditions["too_few"] == 1
    said = json.loads((tmp_path / RESULT).read_text())["notes"]["said"]
    assert [line for line in said if line.startswith("p99_ttft_ms is of 40 requests")]
    assert not [line for line in said if line.startswith("p95_itl_ms")]


FAULTS = [
    ("crash@10", Status.CRASHED, "RuntimeError: an illegal step was taken"),
    ("kill@10", Status.OOM_RUN, "killed for memory while"),
    ("hang@10", Status.TIMEOUT, "hangs: no token for 2 s"),
    ("oom_run@10", Status.OOM_RUN, "CUDA out of memory"),
    ("oom_start", Status.OOM_START, "CUDA out of memory"),
    ("no_cache", Status.OOM_START, "No available memory for the cache blocks"),
    ("crash_start", Status.CRASHED, "RuntimeError: the weights do not fit"),
    ("refuse", Status.INVALID, "these settings do not go together"),
    ("nan", Status.WRONG_OUTPUT, "not numbers"),
    ("repeat", Status.WRONG_OUTPUT, "the same token"),
    ("empty", Status.WRONG_OUTPUT, "asked for 16 tokens, got 0"),
    ("short", Status.WRONG_OUTPUT, "asked for 16 tokens, got 2"),
    ("short@12", Status.WRONG_OUTPUT, "asked for 8 tokens, got"),
    ("empty@12", Status.WRONG_OUTPUT, "no tokens"),
    ("error@12", Status.CRASHED, "status 500: internal error"),
]


@pytest.mark.parametrize(("fault", "status", "reason"), FAULTS, ids=[fault for fault, *_ in FAULTS])
def test_a_fault_is_told_apart(tmp_path: Path, fault: str, status: Status, reason: str) -> None:
    found, done = run(plan("--fault", fault), tmp_path)
    assert (found.status, reason in found.reason) == (status, True), f"{found.status}: {found.reason}\n{done.stderr}"


def test_too_little_memory_for_vllm_on_a_cpu_is_no_crash() -> None:
    said = (
        "ValueError: Available memory on node 0 (9.19/11.21 GiB) on startup is less than desired CPU memory utilization (0.92, 10.32 GiB)"
    )
    result = json.dumps({"failure": "start", "reason": "the server ended with exit code 1 while starting", "returncode": 1})
    found = outcome(Completed(returncode=3, outputs={RESULT: result, LOG: said, STAGE: "starting\n"}))
    assert found.status is Status.OOM_START
    assert found.reason == said


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--max-num-seqs", "many"], "argument --max-num-seqs"),
        (["--speculative-config", "{}", "--refuse=--speculative-config"], "unrecognized arguments: --speculative-config"),
        (["--max-num-seqs", "64", "--max-num-batched-tokens", "32"], "must be greater than or equal to max_num_seqs (64)"),
        (["--tensor-parallel-size", "2"], "World size (2) is larger"),
    ],
)
def test_refused_settings_are_invalid_and_cost_little(tmp_path: Path, flags: list[str], reason: str) -> None:
    found, _ = run(plan(*flags), tmp_path)
    assert found.status is Status.INVALID
    assert reason in found.reason


def test_a_slow_start_is_waited_for(tmp_path: Path) -> None:
    found, _ = run(plan("--start-s", "1.5"), tmp_path)
    assert found.status is Status.OK
    assert found.spent["start_s"] >= 1.4


def test_a_server_that_never_comes_up(tmp_path: Path) -> None:
    found, _ = run(plan("--fault", "hang_start", start_limit_s=1.0), tmp_path)
    assert found.status is Status.TIMEOUT
    assert "not up after 1 s" in found.reason


def test_a_server_that_does_not_exist(tmp_path: Path) -> None:
    found, _ = run(TrialPlan.of({"serve": ["/no/such/engine", "{port}"], "model": "m"}), tmp_path)
    assert found.status is Status.CRASHED
    assert "No such file" in found.reason


@pytest.mark.parametrize("module", ["no_such_engine", "no_such_engine.launch_server"])
def test_a_module_that_is_not_installed_is_no_fault_of_a_configuration(tmp_path: Path, module: str) -> None:
    (tmp_path / "plan.json").write_text(TrialPlan.of({"serve": [sys.executable, "-m", module, "{port}"], "model": "m"}).text())
    done = subprocess.run(COMMAND, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 127, "as for a program that is not there: the study ends at once"
    assert "no_such_engine" in done.stderr


def test_a_server_that_ignores_its_end_and_a_child_that_leaves_the_group(tmp_path: Path) -> None:
    for fault in ("ignore_term", "child"):
        folder = tmp_path / fault
        folder.mkdir()
        found, _ = run(plan("--fault", fault, grace_s=0.5), folder)
        assert found.status is Status.OK


def test_a_port_that_somebody_took_first_is_left_for_another(tmp_path: Path) -> None:
    engine = " ".join(ENGINE)
    script = f'if [ -e tried ]; then exec {engine}; else touch tried; echo "OSError: [Errno 98] Address already in use"; exit 1; fi'
    found, _ = run(plan().model_copy(update={"serve": ("/bin/sh", "-c", script)}), tmp_path)
    assert found.status is Status.OK, found.reason


def test_a_port_that_is_always_taken(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        serve = [*ENGINE[:4], str(port), "--served-model-name", "{port}"]
        found, _ = run(TrialPlan.of({"serve": serve, "model": "fake", "start_limit_s": 5.0}), tmp_path)
    assert found.status is Status.CRASHED
    assert "address already in use" in found.reason.lower()


def test_a_trial_that_cannot_win_is_stopped_early(tmp_path: Path) -> None:
    goal = ToBeat(metric="output_throughput", direction=Direction.MAXIMIZE, value=1e6, limits=())
    env = dict(goal.told_to(Launch()).env)
    found, _ = run(plan("--step-ms", "20", load={"requests": 400}), tmp_path, env)
    assert found.status is Status.BOUNDED
    assert found.bounds["output_throughput"] < 1e6
    assert "1e+06 is to beat" in found.reason
    assert found.spent["measure_s"] < 5
    assert 0 < found.metrics["completed"] < 400, "what was known by then is reported"
    assert found.metrics["mean_ttft_ms"] > 0
    assert found.metrics["output_throughput"] <= found.bounds["output_throughput"]


def test_a_limit_that_is_broken_for_certain_stops_it_early(tmp_path: Path) -> None:
    limits = (Limit.parse("p50_e2el_ms<=50"),)
    goal = ToBeat(metric="output_throughput", direction=Direction.MAXIMIZE, limits=limits)
    found, _ = run(plan("--step-ms", "20", load={"requests": 800, "concurrency": 40}), tmp_path, dict(goal.told_to(Launch()).env))
    assert found.status is Status.BOUNDED
    assert "breaks p50_e2el_ms<=50" in found.reason


@pytest.mark.slow
def test_the_capacity(tmp_path: Path) -> None:
    """A request of 20 tokens takes 0.2 s alone; two at a time make ten a second."""
    load = {"concurrency": 0, "output_tokens": 20, "arrival": "constant"}
    goal = {"kind": "capacity", "slo": ["p95_ttft_ms<=300"], "search_limit_s": 20.0}
    given = plan("--step-ms", "10", "--sequence-us", "0", "--max-num-seqs", "2", load=load, goal=goal)
    found, _ = run(given, tmp_path, limit_s=120)
    assert found.status is Status.OK, found.reason
    assert 6 < found.metrics["capacity_rps"] < 11
    assert found.metrics["p95_ttft_ms"] <= 300
    assert found.metrics["capacity_high_rps"] >= found.metrics["capacity_rps"]


def test_a_server_that_cannot_hold_the_rate_to_beat_is_bounded(tmp_path: Path) -> None:
    goal = ToBeat(metric="capacity_rps", direction=Direction.MAXIMIZE, value=40.0)
    load = {"concurrency": 0, "output_tokens": 20}
    slow = plan("--step-ms", "10", "--max-num-seqs", "2", load=load, goal={"kind": "capacity", "slo": ["p95_ttft_ms<=300"]})
    found, _ = run(slow, tmp_path, dict(goal.told_to(Launch()).env))
    assert found.status is Status.BOUNDED
    assert found.bounds == {"capacity_rps": 40.0}
    assert "cannot hold 40 requests/s" in found.reason
    assert found.metrics["capacity_high_rps"] == 40.0
    assert "capacity_rps" not in found.metrics, "it was not found"
    assert found.metrics["completed"] > 0
    assert found.metrics["p95_e2el_ms"] > 0


def test_lossy_settings_are_compared_with_the_default(tmp_path: Path) -> None:
    serve = [*ENGINE]
    reference = {"key": "k", "serve": serve}
    default, _ = run(plan(check={"reference": reference}), tmp_path)
    assert default.status is Status.OK
    assert (tmp_path / "cache" / "answers" / "answers-k.json").exists()
    lossy, _ = run(plan("--kv-cache-dtype", "fp8", check={"reference": reference}), tmp_path)
    assert lossy.status is Status.OK, lossy.reason
    assert lossy.metrics["token_agreement"] == 1.0
    assert 0 < lossy.metrics["mean_logprob_error"] < 0.05
    strict, _ = run(plan("--kv-cache-dtype", "fp8", check={"reference": reference, "max_logprob_error": 0.001}), tmp_path)
    assert strict.status is Status.WRONG_OUTPUT
    assert "differ from the default's" in strict.reason
    wrong, _ = run(plan("--fault", "garbage", check={"reference": reference, "min_token_agreement": 0.5}), tmp_path)
    assert wrong.status is Status.WRONG_OUTPUT


def test_the_reference_is_made_by_a_server_of_its_own_where_there_is_none(tmp_path: Path) -> None:
    reference = {"key": "k", "serve": [*ENGINE]}
    lossy, _ = run(plan("--kv-cache-dtype", "fp8", check={"reference": reference}), tmp_path)
    assert lossy.metrics["token_agreement"] == 1.0


def test_a_bad_plan_is_refused(tmp_path: Path) -> None:
    bad = plan().model_copy(update={"vocab_size": 1, "grace_s": -1.0})
    _, done = run(bad, tmp_path)
    assert done.returncode == 2
    assert "vocab_size" in done.stderr
    assert "grace_s" in done.stderr


def test_repeats_go_on_until_they_agree() -> None:
    def sample(value: float) -> dict[str, float]:
        return {"output_throughput": value}

    load = Load(repeats=3, enough_s=10.0)
    assert is_repeat_due([], load, 0.0)
    assert is_repeat_due([], load, 1000.0), "one at least, however long it took"
    assert is_repeat_due([sample(100)] * 2, load, 5.0)
    assert not is_repeat_due([sample(100)] * 2, load, 500.0), "a slow one is not repeated for hours"
    assert not is_repeat_due([sample(100)] * 3, load, 5.0)
    assert is_repeat_due([sample(100), sample(70), sample(100)], load, 5.0)
    assert not is_repeat_due([sample(100), sample(70)] * 3, load, 5.0), "twice as many at most"
    assert not is_repeat_due([sample(100)], Load(), 5.0)


def test_repeats_are_samples(tmp_path: Path) -> None:
    found, _ = run(plan(load={"repeats": 2, "requests": 8}), tmp_path)
    assert found.status is Status.OK, found.reason
    assert len(found.samples["output_throughput"]) >= 2
    assert found.metrics["completed"] == 8
    assert found.metrics["start_s"] == found.spent["start_s"]


def test_no_request_begins_after_enough_time(tmp_path: Path) -> None:
    found, _ = run(plan(load={"repeats": 3, "enough_s": 1e-9}), tmp_path)
    assert found.metrics["completed"] == 4, "one of each client"
    assert len(found.samples["completed"]) == 1


def test_repeats_that_cannot_win_are_stopped(tmp_path: Path) -> None:
    goal = ToBeat(metric="output_throughput", direction=Direction.MAXIMIZE, value=1e6)
    found, _ = run(plan(load={"repeats": 3, "requests": 8}), tmp_path, dict(goal.told_to(Launch()).env))
    assert found.status is Status.BOUNDED
    assert "is to beat" in found.reason
    assert len(found.samples["output_throughput"]) == 1


def test_what_a_server_needs_is_made_first(tmp_path: Path) -> None:
    made = tmp_path / "made"
    prepare = [sys.executable, "-c", f"open({str(made)!r}, 'w')"]
    found, _ = run(plan(prepare=prepare), tmp_path)
    assert found.status is Status.OK
    assert made.exists()
    found, _ = run(plan(prepare=[sys.executable, "-c", "raise SystemExit('the model is gone')"]), tmp_path)
    assert (found.status, found.reason) == (Status.CRASHED, "the model is gone")


def test_prompts_that_come_from_a_cache_where_none_may(tmp_path: Path) -> None:
    load = {"prefix_tokens": 512}
    found, _ = run(plan(load=load, check={"uncached": True}), tmp_path)
    assert found.status is Status.WRONG_OUTPUT
    assert "came from a cache" in found.reason
    assert run(plan(load=load), tmp_path)[0].status is Status.OK


def test_a_first_trial_of_the_default_agrees_with_itself(tmp_path: Path) -> None:
    found, _ = run(plan(check={"reference": {"key": "new", "serve": [*ENGINE]}}), tmp_path)
    assert (found.metrics["token_agreement"], found.metrics["mean_logprob_error"]) == (1.0, 0.0)
