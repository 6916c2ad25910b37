"""What engines tell of themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
from serving_trials import plan, run

from autoscout.load.counters import counters_between, parse_counters

VLLM = """# HELP vllm:num_preemptions_total Cumulative number of preemptions.
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{engine="0",model_name="m"} 2.0
vllm:num_preemptions_total{engine="1",model_name="m"} 3.0
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 1e+03
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 250.0
vllm:corrupted_requests_total{engine="0",model_name="m"} 0.0
python_gc_objects_collected_total{generation="0"} 9.0
"""
SGLANG = """sglang:num_retracted_requests_total{tp_rank="0"} 1.0
sglang:prompt_tokens_total{tp_rank="0"} 100.0
sglang:cached_tokens_total{tp_rank="0"} 40.0
"""


@pytest.mark.parametrize(("page", "preemptions", "share"), [(VLLM, 5.0, 0.25), (SGLANG, 1.0, 0.4)])
def test_pages_of_the_engines(page: str, preemptions: float, share: float) -> None:
    assert counters_between({}, parse_counters(page)) == {"preemptions": preemptions, "prefix_hit_share": share}


def test_only_what_happened_meanwhile_counts() -> None:
    before = {"preemptions": 4.0, "hits": 250.0, "looked_up": 500.0, "corrupted": 1.0}
    assert counters_between(before, parse_counters(VLLM)) == {"preemptions": 1.0, "prefix_hit_share": 0.0}
    assert counters_between({**before, "corrupted": 0.0}, {**parse_counters(VLLM), "corrupted": 2.0})["corrupted"] == 2.0


def test_an_engine_that_tells_nothing() -> None:
    assert counters_between({}, parse_counters("<html>")) == {}


def test_a_shared_prefix_is_found_in_the_cache(tmp_path: Path) -> None:
    found, _ = run(plan(load={"input_tokens": 16, "prefix_tokens": 64}), tmp_path)
    assert found.metrics["prefix_hit_share"] > 0.6
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    other, _ = run(plan(), fresh)
    assert other.metrics["prefix_hit_share"] == 0
    assert other.metrics["preemptions"] == 0


SPECULATING_VLLM = """vllm:spec_decode_num_drafts_total{engine="0"} 100.0
vllm:spec_decode_num_draft_tokens_total{engine="0"} 300.0
vllm:spec_decode_num_accepted_tokens_total{engine="0"} 150.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 80.0
"""
SPECULATING_SGLANG = """sglang:spec_verify_calls_total{tp_rank="0"} 100.0
sglang:generation_tokens_total{is_streaming="true"} 260.0
sglang:num_requests_total{is_streaming="true"} 10.0
sglang:spec_num_draft_tokens{tp_rank="0"} 4.0
sglang:spec_num_draft_tokens{tp_rank="1"} 4.0
"""


@pytest.mark.parametrize("page", [SPECULATING_VLLM, SPECULATING_VLLM.replace("vllm:", "llamacpp:"), SPECULATING_SGLANG])
def test_acceptance_of_guesses(page: str) -> None:
    """100 steps with 3 guesses each, of which 150 were right; SGLang's first token of each answer is of no such step."""
    assert counters_between({}, parse_counters(page)) == {"acceptance_rate": 0.5, "acceptance_length": 2.5}


def test_acceptance_is_of_the_time_between() -> None:
    before, after = parse_counters(SPECULATING_VLLM), parse_counters(SPECULATING_VLLM.replace("100.0", "200.0").replace("150.0", "190.0"))
    assert counters_between(before, before) == {}, "nothing was guessed"
    assert counters_between(before, {**after, "guesses": 400.0}) == {"acceptance_rate": 0.4, "acceptance_length": 1.4}


@pytest.mark.parametrize(
    "flags",
    [
        ["--speculative-config", '{"method": "mtp", "num_speculative_tokens": 3}'],
        ["--speculative-algorithm", "EAGLE", "--speculative-num-steps", "3", "--speculative-num-draft-tokens", "4"],
    ],
)
def test_the_stand_in_guesses(flags: list[str], tmp_path: Path) -> None:
    found, _ = run(plan(*flags), tmp_path)
    assert 0 < found.metrics["acceptance_rate"] < 0.3, "random prompts say nothing of what follows"
    assert 1 < found.metrics["acceptance_length"] < 1.5
    assert found.metrics["failed"] == 0
