"""The workload of the `llamacpp` backend: which model, which requests; read from plain data, all faults at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, FiniteFloat

from autoscout.backends.llamacpp.gguf_file import GgufError, ModelFacts
from autoscout.backends.llamacpp.model import RANDOM_MODELS, facts_from, facts_to, model_facts
from autoscout.common.fields import Block, read_fields, shown
from autoscout.common.text import nearest, suggestion
from autoscout.core.errors import Fault
from autoscout.core.task import Direction

WHERE = "workload"
DEFAULT_MODEL = "random"
LARGE_GB = 0.5  # above it a request takes seconds, so fewer are measured
CONTEXT_STEP = 256  # llama.cpp rounds the context of a slot up to it
MOST_SLOTS = 256  # compiled into llama.cpp

STATISTICS = ("mean", "median", "p95", "p99")
LATENCIES = ("ttft_ms", "tpot_ms", "itl_ms", "e2el_ms")
THROUGHPUTS = ("output_throughput", "total_token_throughput", "request_throughput")
METRICS = (
    *THROUGHPUTS,
    *(f"{statistic}_{latency}" for latency in LATENCIES for statistic in STATISTICS),
    "peak_mem_gib",
    "start_s",
    "completed",
    "divergence",
)


class Workload(Block):
    """What is asked of the server, and how carefully. What is 0 or empty when left out is chosen to suit the model.

    Attributes:
        model: A GGUF file, or the name of a random model.
        prompt_tokens: Length of every prompt, fresh random words each time.
        output_tokens: Length of every answer; the model is not allowed to stop earlier.
        concurrency: Clients, each sending its next request when the last is answered.
        requests: Requests per repeat.
        repeats: How often the whole load is repeated in one measurement; up to twice as often while the numbers do not settle, fewer
            times (at least once) when it takes too long.
        warmup: Short requests before the first repeat.
        context: Longest request, prompt and answer together, that every slot must be able to take.
        allow_lossy: Offer knobs that change the answers: quantised weights and KV cache.
        max_divergence: Mean KL divergence (nats per token) from the default's answers above which a configuration is wrong.
        engine_defaults: Whose defaults are the baseline: those of the `llama-server` program, or the library's.
        cache_dir: Folder of the model files that are made; the user's cache folder when empty.
        limit_s: Wall-clock limit of one measurement.
        memory_gb: Memory limit of one measurement; none when 0.
        facts: What the header of the model file says.
    """

    model: str = DEFAULT_MODEL
    prompt_tokens: int = Field(64, ge=1)
    output_tokens: int = Field(48, ge=2)
    concurrency: int = Field(8, ge=1, le=MOST_SLOTS)
    requests: int = Field(0, ge=1)
    repeats: int = Field(0, ge=1)
    warmup: int = Field(0, ge=0)
    context: int = Field(0, ge=1)
    allow_lossy: bool = False
    max_divergence: FiniteFloat = Field(0.05, gt=0)
    engine_defaults: Literal["llama-server", "xllamacpp"] = "llama-server"
    cache_dir: str = ""
    limit_s: FiniteFloat = Field(0.0, gt=0)
    memory_gb: FiniteFloat = Field(0.0, ge=0)
    facts: ModelFacts = Field(RANDOM_MODELS[DEFAULT_MODEL].facts, exclude=True)

    def to_json(self) -> dict[str, Any]:
        """Plain data for a task; reading it gives this workload again."""
        return {**self.model_dump(), **facts_to(self.facts)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Workload:
        """Of a task that this backend made."""
        return cls.model_construct(**{name: data[name] for name in cls.model_fields if name in data}, facts=facts_from(data))


DERIVED = tuple(f"model_{name}" for name in ModelFacts.__dataclass_fields__)


def read_workload(data: Mapping[str, Any]) -> tuple[Workload, list[Fault]]:
    """The workload filled up to suit the model, and all that is wrong with it."""
    given, faults = read_fields(Workload, {name: value for name, value in data.items() if name not in DERIVED}, WHERE)
    given = given or Workload()
    model, facts, unreadable = _model(given.model)
    large = facts is not None and facts.size_gb > LARGE_GB
    clients, needed = given.concurrency, given.prompt_tokens + given.output_tokens
    usual: dict[str, Any] = {
        "requests": clients if large else 2 * clients,
        "repeats": 2 if large else 3,
        "warmup": 1 if large else clients,
        "limit_s": 1800.0 if large else 180.0,
    }
    filled = given.model_copy(
        update={
            **{name: value for name, value in usual.items() if name not in given.model_fields_set},
            "model": model,
            "facts": facts or given.facts,
            "context": math.ceil((given.context or needed) / CONTEXT_STEP) * CONTEXT_STEP,
            "cache_dir": str(Path(given.cache_dir).expanduser().absolute()) if given.cache_dir else "",
        }
    )
    made_for = facts.context if facts is not None else 0
    rules = [
        ("requests", filled.requests < clients, f"must be at least the concurrency ({clients}), or some clients have nothing to ask"),
        ("context", filled.context < needed, f"must hold a prompt and its answer: {needed} tokens"),
        (
            "context" if given.context else "prompt_tokens",
            0 < made_for < needed <= filled.context,
            f"prompt_tokens + output_tokens is {needed}, but the model was made for {made_for}",
        ),
    ]
    broken = [Fault(where=WHERE, field=name, value=shown(getattr(filled, name)), rule=rule) for name, wrong, rule in rules if wrong]
    return filled, [*faults, *unreadable, *broken]


def _model(given: str) -> tuple[str, ModelFacts | None, list[Fault]]:
    if given in RANDOM_MODELS:
        return given, RANDOM_MODELS[given].facts, []
    path = str(Path(given).expanduser().absolute())
    try:
        return path, model_facts(path), []
    except GgufError as error:
        other = f"Give the path of a GGUF file, or one of {', '.join(RANDOM_MODELS)} for a model that AutoScout writes"
        fix = suggestion(given, RANDOM_MODELS) if nearest(given, RANDOM_MODELS) else other
        return path, None, [Fault(where=WHERE, field="model", value=repr(given), rule=f"the model file {error}", fix=fix)]


def natural_direction(metric: str) -> Direction:
    """Which way is better: more throughput, less of everything else."""
    return Direction.MAXIMIZE if metric in THROUGHPUTS else Direction.MINIMIZE
