"""The workload of the `llamacpp` backend: which model, which requests; read from plain data, all faults at once."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autoscout.backends.llamacpp.gguf_file import GgufError, ModelFacts
from autoscout.backends.llamacpp.model import RANDOM_MODELS, facts_from, facts_to, model_facts
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.task import Direction, Limit, Objective

DEFAULT_MODEL = "random"
ENGINE_DEFAULTS = ("xllamacpp", "llama-server")
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
    "startup_s",
    "completed",
    "divergence",
)


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What is asked of the server, and how carefully.

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
        engine_defaults: Whose defaults are the baseline: the wheel's, or those of the `llama-server` program.
        cache_dir: Where made model files lie; the user's cache folder when empty.
        limit_s: Wall-clock limit of one measurement.
        memory_gb: Memory limit of one measurement; none when 0.
    """

    model: str
    prompt_tokens: int
    output_tokens: int
    concurrency: int
    requests: int
    repeats: int
    warmup: int
    context: int
    allow_lossy: bool
    max_divergence: float
    engine_defaults: str
    cache_dir: str
    limit_s: float
    memory_gb: float
    facts: ModelFacts

    def to_json(self) -> dict[str, Any]:
        """Plain data for a task; reading it gives this workload again."""
        fields = asdict(self)
        del fields["facts"]
        return {**fields, **facts_to(self.facts)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Workload:
        """Of a task that this backend made."""
        fields = {name: data[name] for name in cls.__dataclass_fields__ if name != "facts"}
        return cls(**fields, facts=facts_from(data))


FIELDS = tuple(name for name in Workload.__dataclass_fields__ if name != "facts")
DERIVED = tuple(f"model_{name}" for name in ModelFacts.__dataclass_fields__)


class Reader:
    """Takes fields out of a mapping and collects what is wrong with them."""

    def __init__(self, where: str, data: Mapping[str, Any]) -> None:
        self.where = where
        self.data = data
        self.faults: list[Fault] = []

    def fault(self, field: str, rule: str, fix: str = "") -> None:
        """Note a fault of a field that was given."""
        value = repr(self.data[field])[:80] if field in self.data else ""
        self.faults.append(Fault(where=self.where, field=field, value=value, rule=rule, fix=fix))

    def names(self, known: Iterable[str], also: Iterable[str] = ()) -> None:
        """Refuse fields that nobody knows; `also` are accepted but not advertised."""
        known, silent = tuple(known), set(also)
        for name in self.data:
            if name not in known and name not in silent:
                self.fault(str(name), "unknown field", suggest(str(name), known))

    def whole(self, field: str, otherwise: int, least: int = 1) -> int:
        """A whole number."""
        value = self.data.get(field)
        if value is None:
            return otherwise
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            self.fault(field, f"must be a whole number from {least} on")
            return otherwise
        return value

    def number(self, field: str, otherwise: float, above: float = 0.0) -> float:
        """A number above a bound."""
        value = self.data.get(field)
        if value is None:
            return otherwise
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= above:
            self.fault(field, f"must be a number above {above:g}")
            return otherwise
        return float(value)

    def flag(self, field: str) -> bool:
        """True or false."""
        value = self.data.get(field, False)
        if not isinstance(value, bool):
            self.fault(field, "must be true or false")
            return False
        return value

    def text(self, field: str, otherwise: str = "", among: Iterable[str] = ()) -> str:
        """Text, perhaps one of a few words."""
        value, allowed = self.data.get(field), tuple(among)
        if value is None:
            return otherwise
        if not isinstance(value, str) or (allowed and value not in allowed):
            self.fault(field, f"must be one of: {', '.join(allowed)}" if allowed else "must be text", suggest(str(value), allowed))
            return otherwise
        return value


def suggest(name: str, known: Iterable[str]) -> str:
    """`Did you mean ...?`, or the names there are; nothing when there are none."""
    known = tuple(known)
    close = difflib.get_close_matches(name, known, n=2, cutoff=0.6)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    return f"There are: {', '.join(known)}" if known else ""


def read_workload(data: Mapping[str, Any]) -> tuple[Workload | None, list[Fault]]:
    """The workload with all defaults filled in, and what is wrong with it; None where not even the model can be read."""
    reader = Reader("workload", data)
    reader.names(FIELDS, DERIVED)
    model, facts = _model(reader)
    large = facts is not None and facts.size_gb > LARGE_GB
    concurrency = reader.whole("concurrency", 8)
    prompt, output = reader.whole("prompt_tokens", 64), reader.whole("output_tokens", 48, least=2)
    context = _context(reader, prompt + output, facts)
    cache_dir = reader.text("cache_dir")
    found: dict[str, Any] = {
        "concurrency": concurrency,
        "prompt_tokens": prompt,
        "output_tokens": output,
        "context": context,
        "requests": reader.whole("requests", concurrency if large else 2 * concurrency),
        "repeats": reader.whole("repeats", 2 if large else 3),
        "warmup": reader.whole("warmup", 1 if large else concurrency, least=0),
        "allow_lossy": reader.flag("allow_lossy"),
        "max_divergence": reader.number("max_divergence", 0.05),
        "engine_defaults": reader.text("engine_defaults", "xllamacpp", ENGINE_DEFAULTS),
        "cache_dir": str(Path(cache_dir).expanduser().absolute()) if cache_dir else "",
        "limit_s": reader.number("limit_s", 1800.0 if large else 180.0),
        "memory_gb": reader.number("memory_gb", 0.0, above=-1e-9),
    }
    if concurrency > MOST_SLOTS:
        reader.fault("concurrency", f"llama.cpp serves at most {MOST_SLOTS} requests at once")
    if found["requests"] < concurrency:
        reader.fault("requests", f"must be at least the concurrency ({concurrency}), or some clients have nothing to ask")
    return (Workload(model=model, facts=facts, **found) if facts is not None else None), reader.faults


def _model(reader: Reader) -> tuple[str, ModelFacts | None]:
    given = reader.text("model", DEFAULT_MODEL)
    if given in RANDOM_MODELS:
        return given, RANDOM_MODELS[given].facts
    path = Path(given).expanduser().absolute()
    try:
        return str(path), model_facts(str(path))
    except GgufError as error:
        close = difflib.get_close_matches(given, RANDOM_MODELS, n=1)
        other = f"or one of {', '.join(RANDOM_MODELS)} for a model that AutoScout writes"
        reader.fault("model", f"the model file {error}", f"Did you mean {close[0]}?" if close else f"Give the path of a GGUF file, {other}")
        return str(path), None


def _context(reader: Reader, needed: int, facts: ModelFacts | None) -> int:
    context = math.ceil(reader.whole("context", needed) / CONTEXT_STEP) * CONTEXT_STEP
    if context < needed:
        reader.fault("context", f"must hold a prompt and its answer: {needed} tokens")
    elif facts is not None and facts.context and needed > facts.context:
        rule = f"prompt_tokens + output_tokens is {needed}, but the model was made for {facts.context}"
        reader.fault("context" if "context" in reader.data else "prompt_tokens", rule, "Ask for less")
    return context


def read_objective(data: Mapping[str, Any]) -> tuple[Objective, list[Fault]]:
    """What to improve: output throughput unless the user says otherwise."""
    reader = Reader("goal", data)
    reader.names(("metric", "direction", "limits"), ("slo",))
    metric = reader.text("metric", "output_throughput")
    if metric not in METRICS:
        reader.fault("metric", "llama.cpp does not report it", suggest(metric, METRICS))
    natural = Direction.MAXIMIZE if metric in THROUGHPUTS else Direction.MINIMIZE
    direction = reader.text("direction", natural.value, [item.value for item in Direction])
    limits: list[Limit] = []
    for text in (*(data.get("limits") or ()), *(data.get("slo") or ())):
        try:
            limit = Limit.parse(str(text))
        except ConfigError as error:
            reader.faults += error.faults
            continue
        if limit.metric not in METRICS:
            fix = suggest(limit.metric, METRICS)
            reader.faults.append(Fault(where="goal", field="slo", value=str(limit), rule="llama.cpp does not report it", fix=fix))
        limits.append(limit)
    return Objective(metric=metric, direction=Direction(direction), limits=tuple(limits)), reader.faults
