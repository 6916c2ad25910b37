"""Limits on the time per token of answers of at least a number of tokens, and which requests are above a limit."""

from __future__ import annotations

import pytest

from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.launch import Completed
from autoscout.core.task import Direction, Limit, Objective, Task
from autoscout.load.answers import Reply, breaking, latencies, summary
from autoscout.load.outcome import outcome
from autoscout.load.plan import METRICS, TrialGoal, TrialPlan
from autoscout.report.meanings import meaning
from autoscout.simulators.serving.model import ServingModel
from autoscout.traffic.description import Traffic, TrafficWindow

LONG, ALL = Limit.parse("p95_tpot64_ms<=50"), Limit.parse("p95_tpot_ms<=50")


def answer(tokens: int, tpot_s: float, prompt: int = 100) -> Reply:
    reply = Reply(tokens, prompt, sent_s=0.0)
    reply.times_s = [0.1 + tpot_s * number for number in range(tokens)]
    reply.output_tokens, reply.ended_s = tokens, reply.times_s[-1]
    return reply


def test_short_answers_do_not_count() -> None:
    answers = [answer(4, 0.2, prompt=2000) for _ in range(50)] + [answer(100, 0.02) for _ in range(50)]
    metrics = latencies(answers, [LONG])
    assert metrics["p95_tpot64_ms"] == pytest.approx(20.0)
    assert metrics["p95_tpot_ms"] == pytest.approx(200.0)
    assert summary(answers, 10.0, [LONG])["goodput"] == pytest.approx(10.0)
    assert summary(answers, 10.0, [ALL])["goodput"] == pytest.approx(5.0)
    said = breaking(answers, [ALL, LONG])
    assert "p95_tpot_ms<=50: 50 of 100 requests are above it" in said
    assert "prompts of 2000 tokens and answers of 4" in said
    assert "tpot64" not in said


def test_such_limits_are_known() -> None:
    assert "p95_tpot64_ms" in METRICS
    assert "p95_tpot0_ms" not in METRICS
    assert "p95_ttft64_ms" not in METRICS
    assert TrialGoal(slo=("p95_tpot64_ms<=50",)).limits == (LONG,)
    with pytest.raises(ConfigError):
        TrialPlan.of({"serve": ["x", "{port}"], "model": "m", "goal": {"slo": ["p95_tpot64_ms>=50"]}})
    assert "answers of at least 64 tokens" in meaning("p95_tpot64_ms")


def test_simulator_keeps_such_limits() -> None:
    pairs = tuple((3000, 5) for _ in range(30)) + tuple((500, 200) for _ in range(70))
    workload = Traffic(windows=(TrafficWindow(name="x", requests=1.0, pairs=pairs),)).to_load()

    def capacity(limit: str) -> float:
        objective = Objective(metric="capacity_rps", direction=Direction.MAXIMIZE, limits=(Limit.parse(limit),))
        task = Task(system="vllm", objective=objective, workload={"model": "llama-3.1-8b", **workload}, hardware={"gpus": "1xH100"})
        return ServingModel().metrics(Config({"max_num_seqs": 256, "max_num_batched_tokens": 8192}), task)["capacity_rps"]

    assert capacity("p95_tpot64_ms<=50") > 1.2 * capacity("p95_tpot_ms<=50")


def test_trial_says_which_requests_are_above_a_limit() -> None:
    result = '{"metrics": {"output_throughput": 1.0}, "notes": {"breaks": "p95_tpot_ms<=50: 5 of 9 requests are above it"}}'
    done = Completed(returncode=0, wall_s=1.0, outputs={"result.json": result, "stage.txt": "done"})
    assert "5 of 9 requests are above it" in outcome(done).reason
