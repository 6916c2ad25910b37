"""The requests of a load: lengths, prefixes, conversations, files and traces."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from autoscout.core.errors import ConfigError
from autoscout.load.load import arrival_times
from autoscout.load.plan import Load
from autoscout.load.workload import PlannedRequest, RequestSource, gaps, read_talks, read_trace


def some(load: Load, name: str = "a", number: int = 200, seed: int = 1) -> list[list[PlannedRequest]]:
    return list(islice(RequestSource(load, 32000, seed).sessions(name), number))


def test_lengths_are_within_their_spread_and_use_all_of_it() -> None:
    load = Load(input_tokens=100, input_spread=50, output_tokens=20, output_spread=5)
    requests = [request for session in some(load) for request in session]
    inputs = [request.input_tokens for request in requests]
    outputs = [request.output_tokens for request in requests]
    assert 50 <= min(inputs) < 60
    assert 140 < max(inputs) <= 150
    assert {15, 25} <= set(outputs) <= set(range(15, 26))
    tokens = [token for request in requests for token in request.prompt]
    assert all(0 <= token < 32000 for token in tokens)


def test_other_names_give_fresh_prompts_of_the_same_lengths() -> None:
    load = Load(input_tokens=50, input_spread=20)
    one, other = some(load, "a"), some(load, "b")
    assert one == some(load, "a")
    assert [[len(request.prompt) for request in session] for session in one] == [[len(r.prompt) for r in session] for session in other]
    assert not any(mine[0].prompt[:8] == theirs[0].prompt[:8] for mine, theirs in zip(one, other, strict=True))


def test_a_shared_prefix() -> None:
    sessions = some(Load(input_tokens=10, prefix_tokens=64))
    assert len({tuple(session[0].prompt[:64]) for session in sessions}) == 1
    assert len({tuple(session[0].prompt[64:]) for session in sessions}) == len(sessions)


def test_a_conversation_grows() -> None:
    load = Load(workload="multi_turn", turns=3, input_tokens=20, output_tokens=5, context=60)
    for first, second, third in some(load, number=5):
        assert second.prompt[:20] == first.prompt
        assert third.prompt[: len(second.prompt)] == second.prompt
        assert len(third.prompt) + third.output_tokens <= 60


def test_a_file_of_conversations(tmp_path: Path) -> None:
    path = tmp_path / "talks.json"
    said = [{"from": "human", "value": "what is it?"}, {"from": "gpt", "value": "a" * 40}]
    path.write_text(json.dumps([{"conversations": said}, {"conversations": said[:1]}, {"id": 3}]))
    assert read_talks(path) == [("what is it?", 10)]
    one, other = (some(Load(workload="sharegpt", file=str(path)), name, 2) for name in "ab")
    assert one[0][0].prompt != other[0][0].prompt
    assert str(one[0][0].prompt).endswith(" what is it?")


def test_conversations_that_are_too_long_for_the_server_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "talks.json"
    path.write_text(json.dumps([{"conversations": [{"value": "warum? wieso? " * 900}, {"value": "w" * 40_000}]}]))
    ((request,),) = some(Load(workload="sharegpt", file=str(path), context=1000), number=1)
    assert request.output_tokens == 500
    assert len(str(request.prompt)) == 2 * 500, "a token has two letters at least"
    ((request,),) = some(Load(workload="sharegpt", file=str(path)), number=1)
    assert (request.output_tokens, len(str(request.prompt)) > 900 * 14) == (10_000, True), "no bound is known"


TRACES = {
    "azure.csv": "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n",
    "burst.csv": "Timestamp,Model,Request tokens,Response tokens,Log Type\n5,a,374,44,x\n9.314579,a,396,109,x\n9.5,a,0,0,x\n",
    "mooncake.jsonl": '{"timestamp": 1000, "input_length": 374, "output_length": 44, "hash_ids": [0]}\n'
    '{"timestamp": 5314.579, "input_length": 396, "output_length": 109, "hash_ids": [0]}\n',
    "plain.csv": "output_tokens,arrival_time,input_tokens\n109,5.314579,396\n44,1,374\n",
}


@pytest.mark.parametrize("name", TRACES)
def test_layouts_of_traces(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(TRACES[name])
    first, second = read_trace(path)
    assert (first.input_tokens, first.output_tokens) == (374, 44)
    assert (second.input_tokens, second.output_tokens) == (396, 109)
    assert second.time_s - first.time_s == pytest.approx(4.314579, abs=1e-4)


def test_blocks_of_a_trace_are_shared_prefixes(tmp_path: Path) -> None:
    path = tmp_path / "mooncake.jsonl"
    rows = [{"timestamp": 0, "input_length": 700, "output_length": 5, "hash_ids": [3, number]} for number in (7, 8)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (one,), (other,) = some(Load(workload="trace", file=str(path)), number=2)
    assert one.prompt[:512] == other.prompt[:512]
    assert one.prompt[512:] != other.prompt[512:]
    assert len(one.prompt) == 700


@pytest.mark.parametrize(
    "text", ["", "a,b\n1,2\n", "timestamp,input_tokens,output_tokens\nx,1,2\n", "timestamp,input_tokens,output_tokens\n1,0,0\n", "{\n"]
)
def test_files_that_are_no_traces(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"trace\.csv"):
        read_trace(path)


def test_all_bad_rows_of_a_trace_at_once(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("timestamp,input_tokens,output_tokens\n0,100,10\n1,abc,10\n\nx,100,\n")
    with pytest.raises(ConfigError) as caught:
        read_trace(path)
    assert str(caught.value).splitlines() == [
        f"{path}:3: input_tokens: must be a number of tokens (found 'abc')",
        f"{path}:5: timestamp: must be seconds or a date such as 2023-11-16 18:15:46.68 (found 'x')",
        f"{path}:5: output_tokens: must be a number of tokens (found '')",
    ]
    lines = path.with_suffix(".jsonl")
    lines.write_text('{"timestamp": 0, "input_length": 6, "output_length": 5, "hash_ids": "ab"}\n{"timestamp": 1}\n{]\n{]\n')
    with pytest.raises(ConfigError, match=rf"{lines}:3: not valid JSON.*\n{lines}:4: not valid JSON"):
        read_trace(lines)
    lines.write_text('{"timestamp": 0, "input_length": 6, "output_length": 5, "hash_ids": "ab"}\n{"timestamp": 1, "input_length": 4}\n')
    with pytest.raises(ConfigError, match=rf"{lines}:1: hash_ids: .*found 'ab'\)\n{lines}:2: output_length: .*found None\)"):
        read_trace(lines)


@pytest.mark.parametrize(("arrival", "variation"), [("constant", 0.0), ("poisson", 1.0), ("burst", 2.0)])
def test_arrivals_have_their_rate_and_their_variation(arrival: str, variation: float) -> None:
    load = Load(arrival=arrival, burstiness=0.25)
    seen = np.array(list(islice(gaps(load, 3, 20.0), 4000)))
    assert seen.mean() == pytest.approx(1 / 20, rel=0.1)
    assert seen.std() / seen.mean() == pytest.approx(variation, abs=0.15)
    scaled = np.array(list(islice(gaps(load, 3, 40.0), 4000)))
    assert scaled == pytest.approx(seen / 2)


def test_a_short_time_has_its_share_of_requests_and_of_work() -> None:
    load = Load(input_tokens=100, input_spread=50, output_tokens=100, output_spread=50)
    for seed in range(5):
        times_s = arrival_times(gaps(Load(arrival="poisson"), seed, 30.0), 150, 5.0)
        assert len(times_s) == 150
        assert times_s[0] == 0.0
        assert 4.5 < times_s[-1] < 5.0
        requests = [session[0] for session in some(load, number=60, seed=seed)]
        assert sum(request.input_tokens for request in requests) == pytest.approx(6000, rel=0.02)
        assert sum(request.output_tokens for request in requests) == pytest.approx(6000, rel=0.02)


def test_arrivals_of_a_trace_are_scaled_to_a_rate() -> None:
    seen = list(islice(gaps(Load(workload="trace", file="x"), 0, 2.0, [0.0, 1.0, 4.0]), 4))
    assert seen == pytest.approx([0.25, 0.75, 0.25, 0.75])
