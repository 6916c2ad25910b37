"""What an engine tells of itself under /metrics, as far as it explains a measurement: preemptions, hits of the prefix cache, corruption."""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict

from autoscout.load.client import Broken, Client

_LINE = re.compile(r"^(?P<name>[a-z]+:[a-z_]+)(?:\{[^}]*\})? (?P<value>[-+.\deE]+)", re.MULTILINE)

NAMES = {
    "preemptions": ("vllm:num_preemptions_total", "sglang:num_retracted_requests_total"),
    "hits": ("vllm:prefix_cache_hits_total", "sglang:cached_tokens_total"),
    "looked_up": ("vllm:prefix_cache_queries_total", "sglang:prompt_tokens_total"),
    "corrupted": ("vllm:corrupted_requests_total",),
}
"""Our word -> the counters of the engines. The first that an engine has counts."""

Counters = dict[str, float]


async def read(client: Client, path: str) -> Counters:
    """The counters so far; empty where the engine tells nothing."""
    if not path:
        return {}
    with contextlib.suppress(Broken):
        return parse((await client.get(path)).decode("utf-8", errors="replace"))
    return {}


def parse(page: str) -> Counters:
    """The counters of a page, summed over ranks and models."""
    found: defaultdict[str, float] = defaultdict(float)
    for line in _LINE.finditer(page):
        with contextlib.suppress(ValueError):
            found[line["name"]] += float(line["value"])
    return {ours: found[theirs] for ours, names in NAMES.items() for theirs in reversed(names) if theirs in found}


def during(before: Counters, after: Counters) -> dict[str, float]:
    """Metrics of the time between: `preemptions`, `prefix_hit_share`, and `corrupted` where there was any."""
    grown = {name: after[name] - before.get(name, 0.0) for name in after}
    found = {"preemptions": grown["preemptions"]} if "preemptions" in grown else {}
    if grown.get("looked_up", 0.0) > 0 and "hits" in grown:
        found["prefix_hit_share"] = grown["hits"] / grown["looked_up"]
    return found | ({"corrupted": grown["corrupted"]} if grown.get("corrupted", 0.0) > 0 else {})
