"""Load generator and simulator ask what the traffic asks, and studies keep it."""

from __future__ import annotations

import json
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import yaml
from traffic_pages import lengths, vllm_page

from _cli_program import run
from autoscout.backends.vllm import VllmBackend
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.task import Direction, Limit, Objective, Task
from autoscout.estimate.search import estimate
from autoscout.load.plan import Load
from autoscout.load.workload import RequestSource, gaps
from autoscout.simulators.serving.model import ServingModel
from autoscout.traffic.description import Traffic, TrafficWindow
from autoscout.traffic.lengths import TokenLengths
from autoscout.traffic.requests import sample
from autoscout.traffic.together import together

PAIRS = sample(list(zip(lengths(3000, 1500, 1.0, 1), lengths(3000, 60, 1.2, 2), strict=True)), 400)
WINDOW = TrafficWindow(name="all", requests=1000.0, seconds=100.0, pairs=PAIRS)
SERVER = [sys.executable, "-m", "autoscout.testing.openai_server", "--vocab-size", "200000"]


def source(*windows: TrafficWindow, **fields: object) -> RequestSource:
    traffic = Traffic(source="test", windows=windows)
    return RequestSource(Load(workload="traffic", traffic=traffic.to_json(), **fields), 32000, seed=1)


def test_requests_have_the_lengths_of_the_traffic() -> None:
    asked = [session[0] for session in islice(source(WINDOW).sessions("x"), 800)]
    assert np.mean([one.input_tokens for one in asked]) == pytest.approx(WINDOW.mean_input, rel=0.03)
    assert np.mean([one.output_tokens for one in asked]) == pytest.approx(WINDOW.mean_output, rel=0.03)
    assert {(one.input_tokens, one.output_tokens) for one in asked} <= set(PAIRS)
    cut = [session[0] for session in islice(source(WINDOW, context=2048).sessions("x"), 400)]
    assert max(one.input_tokens + one.output_tokens for one in cut) == 2048


def test_prompts_share_as_much_as_was_seen_before() -> None:
    shared = WINDOW.model_copy(update={"prefix_share": 0.4})
    prompts = [session[0].prompt for session in islice(source(shared).sessions("x"), 300)]
    longest = max(prompts, key=len)
    same = [next((at for at, (one, other) in enumerate(zip(prompt, longest, strict=False)) if one != other), 0) for prompt in prompts]
    rest = [(part, len(prompt)) for part, prompt in zip(same, prompts, strict=True) if prompt is not longest]
    assert sum(part for part, _ in rest) / sum(size for _, size in rest) == pytest.approx(0.4, abs=0.02)


def test_sessions_grow_think_and_branch() -> None:
    sessions = WINDOW.model_copy(update={"turns": 6.0, "branches": 2.0, "think_s": 20.0})
    made = source(sessions)
    assert made.shape.requests == 6
    session = next(made.sessions("x"))
    assert [one.is_branch for one in session] == [False, True] * 3
    assert [one.wait_s > 0 for one in session] == [False, False, True, False, True, False]
    sizes = [one.input_tokens for one in session]
    assert sizes == sorted(sizes)
    assert session[4].prompt[: sizes[3]] == session[3].prompt  # the history of the turn before
    waits = [one.wait_s for session in islice(made.sessions("y"), 2000) for one in session if one.wait_s]
    assert np.median(waits) == pytest.approx(20.0, rel=0.1)


def test_conversations_branch_and_think() -> None:
    load = Load(workload="multi_turn", turns=3, branches=2, think_s=5.0, input_tokens=50, output_tokens=10)
    session = next(RequestSource(load, 32000, seed=1).sessions("x"))
    assert len(session) == 6
    assert session[2].prompt[:50] == session[3].prompt[:50] == session[0].prompt
    assert session[2].prompt[60:] != session[3].prompt[60:]


def test_arrivals_have_the_bursts_of_the_traffic() -> None:
    bursts = WINDOW.model_copy(update={"gap_variation": 3.0})
    load = Load(workload="traffic", traffic=Traffic(windows=(bursts,)).to_json(), arrival="burst")
    drawn = list(islice(gaps(load, 1, 10.0, window=bursts), 20000))
    assert np.std(drawn) / np.mean(drawn) == pytest.approx(3.0, rel=0.1)
    assert np.mean(drawn) == pytest.approx(0.1, rel=0.1)


def test_trace_as_load_is_told_to_simulators(tmp_path: Path) -> None:
    """It was told as 1024/128 tokens, whatever the trace asks."""
    path = tmp_path / "trace.csv"
    rows = "\n".join(f"{row},{one},{other}" for row, (one, other) in enumerate(PAIRS))
    path.write_text(f"timestamp,input_tokens,output_tokens\n{rows}\n")
    workload = {"model": "llama-3.1-8b", "workload": "trace", "file": str(path)}
    task = VllmBackend().task({"workload": workload, "hardware": {"gpus": "1xH100"}, "objective": {"limits": ["p95_ttft_ms<=500"]}})
    mean = np.mean(PAIRS, axis=0)
    assert (task.workload["input_tokens"], task.workload["output_tokens"]) == pytest.approx(tuple(mean), abs=1)
    assert Traffic.from_json(task.workload["traffic"]).judged[0].pairs == tuple(sorted(PAIRS))


def simulated(workload: dict[str, object], metric: str = "capacity_rps") -> dict[str, float]:
    limits = (Limit.parse("p95_ttft_ms<=2000"), Limit.parse("p95_tpot_ms<=50"))
    objective = Objective(metric=metric, direction=Direction.MAXIMIZE, limits=limits)
    task = Task(system="vllm", objective=objective, workload={"model": "llama-3.1-8b", **workload}, hardware={"gpus": "1xH100"})
    return ServingModel().metrics(Config({"max_num_seqs": 256, "max_num_batched_tokens": 2048}), task)


def test_simulator_draws_from_the_traffic() -> None:
    even = {"input_tokens": round(WINDOW.mean_input), "output_tokens": round(WINDOW.mean_output)}
    same = simulated(Traffic(windows=(WINDOW,)).to_load())["capacity_rps"]
    assert same != pytest.approx(simulated(even)["capacity_rps"], rel=0.05)  # means alone say something else
    cached = WINDOW.model_copy(update={"prefix_share": 0.8})
    assert simulated(Traffic(windows=(cached,)).to_load())["capacity_rps"] > 1.5 * same
    bursts = WINDOW.model_copy(update={"gap_variation": 4.0})
    assert simulated(Traffic(windows=(bursts,)).to_load())["capacity_rps"] < 0.8 * same


def test_windows_together_keep_limits_in_each() -> None:
    short = WINDOW.model_copy(update={"name": "short", "pairs": ((100, 100),), "seconds": 50.0})
    both = simulated(Traffic(windows=(WINDOW, short)).to_load())
    alone = [simulated(Traffic(windows=(one,)).to_load()) for one in (WINDOW, short)]
    assert both["p95_tpot_ms"] == max(one["p95_tpot_ms"] for one in alone)
    assert [both["capacity_rps_w1"], both["capacity_rps_w2"]] == [one["capacity_rps"] for one in alone]
    expected = 30.0 / (10.0 / alone[0]["capacity_rps"] + 20.0 / alone[1]["capacity_rps"])
    assert both["capacity_rps"] == pytest.approx(expected)
    assert together([WINDOW], [{"output_throughput": 0.0, "completed": 3.0}])["output_throughput"] == 0.0


def test_estimate_on_a_traffic() -> None:
    found = estimate(
        "vllm", model="llama-3.1-8b", gpus="1xH100", limits=["p95_ttft_ms<=2000"], traffic=Traffic(source="mine", windows=(WINDOW,))
    )
    assert "lengths of mine" in found.load
    assert found.candidates[0].metrics["capacity_rps"] > 0


@pytest.mark.slow
def test_study_on_two_windows_of_a_page_keeps_the_traffic(tmp_path: Path) -> None:
    page = tmp_path / "page.txt"
    page.write_text(vllm_page([20] * 300, [8] * 300))
    data = {
        "system": "vllm",
        "traffic": {"source": str(page)},
        "workload": {"model": "llama-3.1-8b", "engine_command": SERVER, "concurrency": 4, "requests": 16},
        "hardware": {"gpus": 0, "cores": 2},
        "budget": {"trials": 2},
        "finals": {"rounds": 0},
        "simulate": {"simulator": "none"},
    }
    campaign = tmp_path / "campaign.yaml"
    campaign.write_text(yaml.dump(data))
    arguments = ["tune", str(campaign), "-o", str(tmp_path), "-e", "mine", "--json"]
    first = run(tmp_path, *arguments)
    assert first.returncode in (0, 2), first.stderr
    kept = json.loads((tmp_path / "mine" / "traffic.json").read_text())
    assert Traffic.from_json(kept).judged[0].mean_input == pytest.approx(20, rel=0.3)
    spec = yaml.safe_load((tmp_path / "mine" / "campaign.yaml").read_text())
    assert spec["workload"]["traffic"] == kept
    assert "traffic" not in spec
    page.write_text(vllm_page([2000] * 300, [8] * 300))  # another time of day
    again = run(tmp_path, *arguments)
    assert again.returncode == first.returncode, again.stderr
    assert "the study has its traffic already" in again.stderr
    settings = ["model=llama-3.1-8b", f"engine_command={json.dumps(SERVER)}", "concurrency=2", "requests=8"]
    flags = [word for setting in settings for word in ("-w", setting)]
    profiled = run(tmp_path, "profile", "vllm", "--traffic", "mine/traffic.json", *flags, "--gpus", "0", "--json")
    assert profiled.returncode == 0, profiled.stderr
    assert json.loads(profiled.stdout)["measurements"][0]["metrics"]["completed"] == 8


def test_traffic_of_systems_without_requests_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.txt"
    page.write_text(vllm_page([20] * 300, [8] * 300))
    done = run(tmp_path, "tune", "command", "--traffic", str(page), "--train-cmd", "true", "--dry-run")
    assert done.returncode == 2
    assert "command serves no requests of an API" in done.stderr
    done = run(tmp_path, "tune", "vllm", "--model", "llama-3.1-8b", "--traffic", str(page), "-w", "input_tokens=5", "--dry-run")
    assert done.returncode == 2
    assert "says what input_tokens of the workload say too" in done.stderr


def test_verb_describes_and_draws(tmp_path: Path) -> None:
    page = tmp_path / "page.txt"
    page.write_text(vllm_page(lengths(500, 900, 0.8, 1), lengths(500, 70, 1.0, 2)))
    done = run(tmp_path, "traffic", str(page), "-o", str(tmp_path / "t.json"), "--picture", str(tmp_path / "t.svg"))
    assert done.returncode == 0, done.stderr
    assert "prompts of" in done.stdout
    assert json.loads(run(tmp_path, "traffic", str(tmp_path / "t.json"), "--json").stdout)["format"] == "autoscout traffic 1"
    assert "<svg" in (tmp_path / "t.svg").read_text()
    wrong = run(tmp_path, "traffic", str(tmp_path / "nothing"))
    assert wrong.returncode == 2


def test_several_windows_are_measured_in_one_start() -> None:
    windows = (WINDOW.model_copy(update={"pairs": ((16, 4),)}), WINDOW.model_copy(update={"name": "two", "pairs": ((32, 8),)}))
    traffic = Traffic(windows=(*windows, WINDOW.model_copy(update={"name": "held", "held_out": True})))
    with pytest.raises(ConfigError):
        Traffic.from_json({**traffic.to_json(), "windows": []})
    assert traffic.mean_lengths == (24, 6)
    assert traffic.longest == 40
    assert [window.name for window in traffic.unseen] == ["held"]
    assert TokenLengths.of([5, 5, 5]).at(0.7) == 5


def test_simulator_knows_the_sessions_that_a_capacity_is() -> None:
    asked = WINDOW.model_copy(update={"turns": 4.0, "think_s": 20.0})
    found = simulated(Traffic(windows=(asked,)).to_load(), "capacity_sessions")
    lasts_s = 4 * found["mean_e2el_ms"] / 1000 + 3 * 20.0 / np.log(2)
    assert found["capacity_sessions"] == pytest.approx(found["capacity_rps"] / 4 * lasts_s)
    talks = simulated({"input_tokens": 500, "output_tokens": 50, "workload": "multi_turn", "turns": 2, "think_s": 9.0})
    assert talks["capacity_sessions"] > talks["capacity_rps"] * 9.0 / np.log(2) / 2
    assert "capacity_sessions" not in simulated({"input_tokens": 500, "output_tokens": 50})
