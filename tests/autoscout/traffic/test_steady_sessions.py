"""Sessions in a steady state: a load asks at the rate that it says, from its beginning to its end."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from autoscout.core import seeds
from autoscout.load.client import Client
from autoscout.load.load import Loader, LoadRecord
from autoscout.load.plan import COMMAND, PLAN, RESULT, Load, TrialPlan
from autoscout.load.server import Server, end
from autoscout.load.steady import DueSession, Span, clients_under_way, due_sessions, under_way
from autoscout.load.workload import RequestSource, gaps
from autoscout.traffic.sessions import SessionShape

ENGINE = (sys.executable, "-m", "autoscout.testing.openai_server", "--port", "{port}", "--step-ms", "1")
RATE = 10.0
SPAN = Span(5.0, 40.0)


def due(shape: SessionShape, seed: int = 0, answer_s: float = 1.0) -> list[DueSession]:
    gaps_s = gaps(Load(arrival="poisson"), seed, RATE / shape.requests)
    return due_sessions(shape, RATE, gaps_s, seeds.stream(seed, "sessions"), answer_s, SPAN)


@pytest.mark.parametrize("think_s", [0.0, 5.0, 20.0])
@pytest.mark.parametrize("turns", [1, 4, 8])
@pytest.mark.parametrize("seed", range(3))
def test_the_schedule_has_the_rate_that_is_asked_for(turns: int, think_s: float, seed: int) -> None:
    """With four turns and pauses of 20 s, a probe of 10 requests a second offered 3.4 at most."""
    times_s = np.sort([time_s for one in due(SessionShape(turns, 1, think_s), seed) for time_s in one.due_s])
    counted = times_s[(times_s >= SPAN.ramp_s) & (times_s < SPAN.whole_s)]
    assert len(counted) / SPAN.count_s == pytest.approx(RATE, rel=0.03)
    assert times_s[-1] < SPAN.whole_s
    half = SPAN.ramp_s + SPAN.count_s / 2
    assert np.mean(counted < half) == pytest.approx(0.5, abs=0.15)  # neither a ramp nor a tail


def test_sessions_under_way_are_in_every_part_of_their_conversation() -> None:
    sessions = [one for seed in range(20) for one in due(SessionShape(8, 1, 20.0), seed)]
    firsts = np.bincount([one.first for one in sessions], minlength=8)
    assert firsts[1:].min() > 0.6 * firsts[1:].mean()
    assert firsts[1:].max() < 1.5 * firsts[1:].mean()
    assert all(np.diff(one.due_s).min(initial=1.0) >= 1.0 for one in sessions)  # an answer lies between two turns


def test_branches_count_as_requests() -> None:
    sessions = due(SessionShape(4, 3, 5.0))
    assert 3 * sum(len(one.due_s) for one in sessions) / SPAN.whole_s == pytest.approx(RATE, rel=0.05)


def test_clients_are_anywhere_in_their_sessions_at_first() -> None:
    clients = clients_under_way(SessionShape(6, 1, 20.0), 600, seeds.stream(1, "sessions"), 1.0)
    firsts = np.bincount([one.first for one in clients], minlength=6)
    assert firsts[1:].min() > 50  # a new session begins right after the last answer of the one before it
    assert all(one.due_s[0] >= 0 and len(one.due_s) == 6 - one.first for one in clients)
    mean_s = 20.0 / np.log(2)
    assert np.mean([one.due_s[0] for one in clients]) == pytest.approx(mean_s, rel=0.25)


def test_what_a_session_said_before_is_the_beginning_of_what_it_says_next() -> None:
    load = Load(workload="multi_turn", turns=4, branches=2, think_s=20.0, input_tokens=30, output_tokens=5)
    source = RequestSource(load, 32000, seed=1)
    sessions = due(source.shape)
    parts, before = under_way(source.sessions("x"), sessions, 2)
    whole = list(islice(source.sessions("x"), len(sessions)))
    old = [(one, part) for one, part in zip(sessions, parts, strict=True) if one.first]
    assert len(before) == len(old) > 50
    for (one, part), (history,) in zip(old, before, strict=True):
        assert history.output_tokens == 1
        assert part[0].prompt[: history.input_tokens] == history.prompt
        assert part[0].input_tokens == history.input_tokens + 30  # only the question is new
        assert part[0].wait_s == one.due_s[0]
    assert [len(part) for part in parts] == [2 * len(one.due_s) for one in sessions]
    assert parts[0][0].prompt == whole[0][2 * sessions[0].first].prompt


def test_sessions_at_a_time() -> None:
    shape = SessionShape(turns=4, branches=2, think_s=20.0)
    assert shape.under_way(8.0, 1.5) == pytest.approx(1.0 * (4 * 1.5 + 3 * 20.0 / np.log(2)))
    counts = []
    for seed in range(30):  # as many as the schedule has between their first turn and the end of their last answer
        sessions = due(SessionShape(4, 1, 5.0), seed)
        counts.append(sum(one.first > 0 for one in sessions))
    expected = SessionShape(4, 1, 5.0).under_way(RATE, 1.0)
    assert np.mean(counts) == pytest.approx(expected - RATE / 4, rel=0.1)  # but for those in their last answer


@pytest.mark.parametrize(("turns", "think_s"), [(1, 0.0), (4, 0.0), (4, 0.25), (8, 0.05), (8, 1.0)])
def test_a_real_server_is_asked_at_that_rate(tmp_path: Path, turns: int, think_s: float) -> None:
    """Think times of 5 and 20 s in a twentieth of their time. Requests are counted, not timed: whatever is due is sent."""
    load = Load(workload="multi_turn", turns=turns, think_s=think_s, input_tokens=16, output_tokens=4)
    source, span, rate = RequestSource(load, 2000, seed=1), Span(0.5, 3.0), 40.0
    gaps_s = gaps(Load(arrival="poisson"), 1, rate / source.shape.requests)
    schedule = due_sessions(source.shape, rate, gaps_s, seeds.stream(1, "sessions"), 0.05, span)
    parts, _ = under_way(source.sessions("x"), schedule, 1)

    async def go(port: int) -> tuple[LoadRecord, int]:
        client = Client(port, "fake")
        record = await Loader(client).arriving(parts, [one.due_s for one in schedule])
        page = (await client.get("/metrics")).decode()
        client.close()
        counts = re.findall(r"^vllm:e2e_request_latency_seconds_count\S* (\S+)", page, re.MULTILINE)
        return record, int(sum(map(float, counts)))

    server = Server([*ENGINE, "--vocab-size", "2000", "--served-model-name", "fake"], {}, tmp_path, "server.log")
    try:
        server.wait_until_up("/health", 60.0)
        record, answered = asyncio.run(go(server.port))
    finally:
        end([server.pid], 5.0)
        server.poll()
    assert all(answer.is_complete for answer in record.answers)
    assert len(record.answers) == answered
    assert len(record.answers) / span.whole_s == pytest.approx(rate, rel=0.05)


def test_a_load_of_one_session_that_thinks_long_asks_at_least_once(tmp_path: Path) -> None:
    """Nothing was asked in the time of its one request, and the load was sent again without end."""
    shape = SessionShape(3, 1, 2.0)
    late = [seed for seed in range(50) if clients_under_way(shape, 1, seeds.stream(seed, "sessions"), 0.5)[0].due_s[0] > 4.0]
    load = {"workload": "multi_turn", "turns": 3, "think_s": 2.0, "concurrency": 1, "requests": 1, "input_tokens": 16, "output_tokens": 4}
    serve = [*ENGINE, "--vocab-size", "2000"]
    plan = TrialPlan.of({"serve": serve, "model": "fake", "load": load, "vocab_size": 2000, "limit_s": 60.0, "seed": late[0]})
    (tmp_path / PLAN).write_text(plan.text())
    done = subprocess.run(COMMAND, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    result = json.loads((tmp_path / RESULT).read_text())
    assert done.returncode == 0, done.stderr
    assert result["metrics"]["completed"] >= 1
    assert result["metrics"]["sessions_under_way"] == 1
