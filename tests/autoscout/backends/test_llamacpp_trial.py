"""Measurements on the real engine: a good one, and every way of going wrong."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from llamacpp_running import config_of, measure, run, settings_of, small_task, with_settings

from autoscout.backends.llamacpp import LlamaCppBackend, serve
from autoscout.backends.llamacpp.model import ensure_model
from autoscout.core.launch import Launch, Resources
from autoscout.core.task import Direction
from autoscout.core.to_beat import ToBeat
from autoscout.core.trial import Status
from autoscout.load.plan import LATENCIES, PLAN, RESULT, STATISTICS

BACKEND = LlamaCppBackend()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def test_a_measurement(cache: Path, tmp_path: Path) -> None:
    task = small_task(cache, repeats=2, concurrency=3, requests=4)
    done = measure(task, tmp_path, config_of(task, parallel=3))
    assert done.status is Status.OK, f"{done.reason}\n{done.log_tail}"
    assert {f"{name}_{latency}" for name in STATISTICS for latency in LATENCIES} <= set(done.metrics)
    assert {"request_throughput", "start_s", "completed"} <= set(done.metrics)
    assert len(done.samples["output_throughput"]) >= 2
    assert done.metrics["divergence"] < 0.01
    assert 0 < done.metrics["median_ttft_ms"] <= done.metrics["p99_ttft_ms"] <= done.metrics["p99_e2el_ms"]
    assert done.metrics["total_token_throughput"] == pytest.approx(3 * done.metrics["output_throughput"]), "8 tokens in, 4 out"
    assert 0.01 < done.metrics["peak_mem_gib"] < 4


def test_a_measurement_that_cannot_win_is_stopped_early(cache: Path, tmp_path: Path) -> None:
    task = small_task(cache, repeats=3, requests=4)
    goal = ToBeat(metric="output_throughput", direction=Direction.MAXIMIZE, value=1e9)
    done = BACKEND.parse(run(goal.told_to(BACKEND.render(config_of(task), task, seed=3)), tmp_path / "a"), task)
    assert done.status is Status.BOUNDED, f"{done.reason}\n{done.log_tail}"
    assert 0 < done.bounds["output_throughput"] < 1e9
    assert "is to beat" in done.reason
    assert done.spent.keys() == {"start_s", "warm_up_s", "measure_s"}
    easy = replace(goal, value=1e-6)
    done = BACKEND.parse(run(easy.told_to(BACKEND.render(config_of(task), task, seed=3)), tmp_path / "b"), task)
    assert done.status is Status.OK, done.reason
    assert done.metrics["start_s"] == done.spent["start_s"]


def test_the_launch_leaves_its_files(cache: Path, tmp_path: Path) -> None:
    task = small_task(cache)
    completed = run(BACKEND.render(config_of(task), task, seed=1), tmp_path)
    assert completed.returncode == 0, completed.log_tail
    assert completed.outputs["stage.txt"] == "done\n"
    assert json.loads(completed.outputs[RESULT])["metrics"]["output_tokens"] == 8
    assert "output_throughput: " in completed.stdout


@pytest.mark.slow
def test_every_exact_setting_gives_the_same_answers(cache: Path, tmp_path: Path) -> None:
    """What the default space offers must not change what the model says."""
    task = small_task(cache)
    space = BACKEND.space(task)
    for knob in space.knobs.values():
        for value in {knob.values[0], knob.values[-1]} - {knob.default}:
            done = measure(task, tmp_path, config_of(task, **{knob.name: value}))
            assert done.status is Status.OK, f"{knob.name}={value}: {done.reason}\n{done.log_tail}"
            assert done.metrics["divergence"] < 0.01


def test_lossy_settings_are_caught_when_they_lose_too_much(cache: Path, tmp_path: Path) -> None:
    task = small_task(cache, allow_lossy=True)
    done = measure(task, tmp_path, config_of(task, weights="q4_0"))
    assert done.status is Status.WRONG_OUTPUT, "random weights do not survive 4 bits"
    assert "nats" in done.reason
    tolerant = small_task(cache, allow_lossy=True, max_divergence=10.0)
    done = measure(tolerant, tmp_path, config_of(tolerant, weights="q4_0"))
    assert done.status is Status.OK, done.reason
    assert done.metrics["divergence"] > 0.05
    exact = measure(task, tmp_path, config_of(task, cache_type_k="q8_0", cache_type_v="q8_0"))
    assert exact.status is Status.OK, exact.reason
    assert 0 < exact.metrics["divergence"] < 0.05


def test_a_model_of_the_users_own(cache: Path, tmp_path: Path) -> None:
    model = shutil.copy(ensure_model("random-tiny", "f16", cache), tmp_path / "it's mine.gguf")
    task = small_task(cache, model=str(model), allow_lossy=True, max_divergence=10.0)
    assert measure(task, tmp_path / "a").status is Status.OK
    assert measure(task, tmp_path / "b", config_of(task, weights="q8_0")).status is Status.OK, "converted on the way"
    with Path(model).open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x01")
    changed = measure(task, tmp_path / "c")
    assert changed.status is Status.CRASHED
    assert "not the one the study began with" in changed.reason
    Path(model).unlink()
    gone = measure(task, tmp_path / "d")
    assert gone.status is Status.CRASHED
    assert "No such file" in gone.reason


def test_a_combination_the_engine_refuses(cache: Path, tmp_path: Path) -> None:
    task = small_task(cache)
    launch = BACKEND.render(config_of(task), task, seed=1)
    for settings, why in (
        ({"cache_type_v": "q8_0", "flash_attention": "off"}, "quantized V cache requires"),
        ({"parallel": 300, "context": 300 * 256}, "n_seq_max"),
        ({"gpu_layers": "all"}, "sees none"),
    ):
        done = BACKEND.parse(run(replace(launch, files=with_settings(launch, **settings)), tmp_path), task)
        assert done.status is Status.INVALID, done.log_tail
        assert why in done.reason


def test_a_request_the_engine_refuses(cache: Path, tmp_path: Path) -> None:
    task = small_task(cache, input_tokens=300)
    launch = BACKEND.render(config_of(task), task, seed=1)
    done = BACKEND.parse(run(replace(launch, files=with_settings(launch, context=256)), tmp_path), task)
    assert done.status is Status.INVALID
    assert "exceeds the available context" in done.reason


def test_an_engine_that_crashes(cache: Path, tmp_path: Path) -> None:
    task = small_task(cache)
    launch = BACKEND.render(config_of(task), task, seed=1)
    done = BACKEND.parse(run(replace(launch, files=with_settings(launch, batch=0)), tmp_path), task)
    assert done.status is Status.CRASHED
    assert "GGML_ASSERT" in done.reason


def test_an_engine_that_hangs(cache: Path, tmp_path: Path) -> None:
    task = small_task(cache)
    measure(task, tmp_path / "warm")  # so that nothing has to be made in the short time below
    launch = BACKEND.render(config_of(task), task, seed=1)
    done = BACKEND.parse(run(replace(launch, files=with_settings(launch, parallel=0)), tmp_path, limit_s=5.0), task)
    assert done.status is Status.TIMEOUT
    assert "still" in done.reason


def test_memory_that_is_not_there(cache: Path, tmp_path: Path) -> None:
    task = small_task(cache, model="random")
    launch = BACKEND.render(config_of(task), task, seed=1)
    beyond = with_settings(launch, context=3_000_000)  # a cache of 12 GB
    argv = ("/bin/sh", "-c", 'ulimit -v 6000000; exec "$@"', "sh", *launch.argv)
    done = BACKEND.parse(run(replace(launch, files=beyond, argv=argv), tmp_path), task)
    assert done.status is Status.OOM_START, f"{done.status} {done.reason}\n{done.log_tail}"
    limited = small_task(cache, memory_gb=0.02, requests=20_000)  # less than Python with the engine; long enough to be seen
    done = BACKEND.parse(run(BACKEND.render(config_of(limited), limited, seed=1), tmp_path), limited)
    assert done.status.out_of_memory, f"{done.status} {done.reason}\n{done.log_tail}"
    assert BACKEND.render(config_of(limited), limited, seed=1).resources == Resources(cpus=int(limited.hardware["cores"]), memory_gb=0.02)


def with_program(launch: Launch, program: str) -> Launch:
    """The launch with another program in the place of the server."""
    data = json.loads(launch.files[PLAN])
    data["serve"][1] = "{folder}/other.py"
    return replace(launch, files={PLAN: json.dumps(data), "other.py": program})


@pytest.mark.parametrize(
    ("ending", "status", "reason"),
    [
        ("os.kill(os.getpid(), signal.SIGABRT)", Status.CRASHED, "ended by SIGABRT while checking: a.cpp:7: GGML_ASSERT(n > 0) failed"),
        ("os.kill(os.getpid(), signal.SIGKILL)", Status.OOM_RUN, "killed for memory while checking"),
        ("print('CUDA error: out of memory', file=sys.stderr, flush=True); os._exit(1)", Status.OOM_RUN, "CUDA error: out of memory"),
        ("self.connection.close()", Status.CRASHED, "the connection broke"),
    ],
)
def test_a_server_that_ends_under_load(ending: str, status: Status, reason: str, cache: Path, tmp_path: Path) -> None:
    task = small_task(cache)
    measure(task, tmp_path / "warm")  # the answers of the default come from a real server
    program = f"""
import http.server, os, signal, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def do_POST(self):
        print("a.cpp:7: GGML_ASSERT(n > 0) failed", file=sys.stderr, flush=True)
        {ending}
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[-1])), Handler)
server.serve_forever()
"""
    done = BACKEND.parse(run(with_program(BACKEND.render(config_of(task), task, seed=1), program), tmp_path), task)
    assert (done.status, reason in done.reason) == (status, True), done


def test_the_server_that_is_measured_is_the_one_that_is_handed_over(cache: Path) -> None:
    task = small_task(cache)
    config = config_of(task, parallel=2)
    launch, exported = BACKEND.render(config, task, seed=1), BACKEND.export(config, task)
    assert settings_of(launch) == json.loads(exported["server.json"])
    assert exported["server.py"] == Path(json.loads(launch.files[PLAN])["serve"][1]).read_text()


def test_a_wheel_without_some_parameter(cache: Path, tmp_path: Path) -> None:
    task = small_task(cache)
    launch = BACKEND.render(config_of(task), task, seed=1)
    program = Path(serve.__file__).read_text().replace('"n_ubatch"', '"n_gone"')
    done = BACKEND.parse(run(with_program(launch, program), tmp_path), task)
    assert done.status is Status.INVALID, done
    assert "no parameter 'n_gone'" in done.reason


def test_a_crawling_measurement_is_cut_short_and_still_counts(cache: Path, tmp_path: Path) -> None:
    task = small_task(cache, concurrency=2, requests=6, repeats=3, enough_s=1e-9)
    done = measure(task, tmp_path, config_of(task, parallel=2))
    assert done.status is Status.OK, f"{done.reason}\n{done.log_tail}"
    assert done.samples["completed"] == (2.0,), "one repeat, one request of each client"


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    done = measure(small_task(tmp_path / "file" / "below"), tmp_path)
    assert done.status is Status.CRASHED
    assert "could not be prepared" in done.reason


def test_broken_input_is_a_crash_with_its_reason(cache: Path, tmp_path: Path) -> None:
    task = small_task(cache)
    launch = BACKEND.render(config_of(task), task, seed=1)
    done = BACKEND.parse(run(replace(launch, files={PLAN: "{"}), tmp_path), task)
    assert done.status is Status.CRASHED
    assert "cannot be read" in done.reason


def test_prompts_that_a_cache_may_serve(cache: Path, tmp_path: Path) -> None:
    """Conversations may use the server's cache; fresh prompts must not."""
    task = small_task(cache, workload="multi_turn", turns=3, requests=6)
    done = measure(task, tmp_path)
    assert done.status is Status.OK, f"{done.reason}\n{done.log_tail}"
    assert done.metrics["completed"] == 6
    plan = json.loads(BACKEND.render(config_of(task), task, seed=1).files[PLAN])
    assert (plan["request"], plan["check"]["uncached"]) == ({}, False)


def test_arrivals_at_a_rate(cache: Path, tmp_path: Path) -> None:
    workload = {"model": "random-tiny", "input_tokens": 8, "output_tokens": 4, "request_rate": 20.0, "requests": 20}
    task = BACKEND.task({"workload": {**workload, "cache_dir": str(cache)}, "goal": {"slo": ["p95_ttft_ms<=5000"]}})
    done = measure(task, tmp_path)
    assert task.objective.metric == "goodput"
    assert task.workload["arrival"] == "poisson"
    assert done.status is Status.OK, f"{done.reason}\n{done.log_tail}"
    assert 0 < done.metrics["goodput"] <= done.metrics["request_throughput"]


def test_a_trace(cache: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("timestamp,input_tokens,output_tokens\n0,20,4\n0.1,300,4\n0.2,10,6\n")
    task = small_task(cache, workload="trace", file=str(trace), concurrency=0, requests=0)
    assert task.workload["context"] == 512, "room for the longest request"
    done = measure(task, tmp_path)
    assert done.status is Status.OK, f"{done.reason}\n{done.log_tail}"
    assert (done.metrics["input_tokens"], done.metrics["output_tokens"]) == (330, 14)


@pytest.mark.slow
def test_the_capacity(cache: Path, tmp_path: Path) -> None:
    workload = {"model": "random-tiny", "input_tokens": 8, "output_tokens": 4, "search_limit_s": 15.0, "cache_dir": str(cache)}
    task = BACKEND.task({"workload": workload, "goal": {"metric": "capacity_rps", "slo": ["p95_ttft_ms<=500"]}})
    done = measure(task, tmp_path)
    assert done.status is Status.OK, f"{done.reason}\n{done.log_tail}"
    assert done.metrics["capacity_rps"] > 0
    assert done.metrics["p95_ttft_ms"] <= 500
