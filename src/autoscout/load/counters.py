"""What engines tell of themselves under /metrics, before a load and after it."""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from collections.abc import Mapping

from autoscout.load.client import Client, RequestFailed

COUNTERS = {
    "preemptions": ("vllm:num_preemptions_total", "sglang:num_retracted_requests_total"),
    "hits": ("vllm:prefix_cache_hits_total", "sglang:cached_tokens_total"),
    "looked_up": ("vllm:prefix_cache_queries_total", "sglang:prompt_tokens_total"),
    "corrupted": ("vllm:corrupted_requests_total",),
    "drafts": ("vllm:spec_decode_num_drafts_total", "sglang:spec_verify_calls_total", "llamacpp:spec_decode_num_drafts_total"),
    "guesses": ("vllm:spec_decode_num_draft_tokens_total", "llamacpp:spec_decode_num_draft_tokens_total"),
    "accepted": ("vllm:spec_decode_num_accepted_tokens_total", "llamacpp:spec_decode_num_accepted_tokens_total"),
    "answered": ("sglang:num_requests_total",),
    "made": ("sglang:generation_tokens_total",),
}
"""Our word -> the counters of the engines. The first that an engine has counts."""
WINDOW = "sglang:spec_num_draft_tokens"
"""SGLang counts no guesses: each check is of this many tokens, of which the last is no guess. A gauge of every rank."""
_COUNTER = re.compile(r"^(?P<name>[a-z]+:[a-z_]+)(?:\{[^}]*\})? (?P<value>[-+.\deE]+)", re.MULTILINE)


async def read_counters(client: Client, path: str) -> dict[str, float]:
    """The engine's own counters so far; empty where it has none."""
    if not path:
        return {}
    with contextlib.suppress(RequestFailed):
        return parse_counters((await client.get(path)).decode("utf-8", errors="replace"))
    return {}


def parse_counters(page: str) -> dict[str, float]:
    """The counters of a page, summed over ranks and models."""
    values: defaultdict[str, list[float]] = defaultdict(list)
    for line in _COUNTER.finditer(page):
        with contextlib.suppress(ValueError):
            values[line["name"]].append(float(line["value"]))
    counters = {ours: sum(values[theirs]) for ours, names in COUNTERS.items() for theirs in reversed(names) if theirs in values}
    return counters | ({"window": max(values[WINDOW])} if WINDOW in values else {})


def counters_between(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Metrics of the time between: `preemptions`, `prefix_hit_share`, those of guesses where there were any, `corrupted` likewise."""
    growth = {name: after[name] - before.get(name, 0.0) for name in after}
    metrics = {"preemptions": growth["preemptions"]} if "preemptions" in growth else {}
    if growth.get("looked_up", 0.0) > 0 and "hits" in growth:
        metrics["prefix_hit_share"] = growth["hits"] / growth["looked_up"]
    metrics |= _speculation({**growth, "window": after.get("window", 0.0)})
    return metrics | ({"corrupted": growth["corrupted"]} if growth.get("corrupted", 0.0) > 0 else {})


def _speculation(growth: Mapping[str, float]) -> dict[str, float]:
    """How many guesses were right: their share, and the tokens that one step of the model gave, its own included."""
    drafts = growth.get("drafts", 0.0)
    if drafts <= 0:
        return {}
    accepted, guesses = growth.get("accepted"), growth.get("guesses", 0.0)
    if accepted is None and "made" in growth:  # SGLang; the first token of an answer comes with its prompt, not from a check
        accepted = max(0.0, growth["made"] - growth.get("answered", 0.0) - drafts)
        guesses = drafts * max(0.0, growth["window"] - 1)
    if accepted is None:
        return {}
    rate = {"acceptance_rate": accepted / guesses} if guesses > 0 else {}
    return {**rate, "acceptance_length": 1 + accepted / drafts}


__all__ = ["COUNTERS", "counters_between", "parse_counters", "read_counters"]
