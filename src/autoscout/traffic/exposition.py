"""What engines tell of their traffic in Prometheus' text format, and what the growth between two such pages says."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from autoscout.core.errors import ConfigError, Fault
from autoscout.traffic.description import TrafficWindow
from autoscout.traffic.lengths import TokenLengths

MOST_LINES = 500_000  # of one page
LEAST_INTERVALS = 20  # between scrapes, for a spread of the numbers of requests in them
_LINE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>[^{}]*)\})?\s+(?P<value>\S+)(?:\s+-?\d+)?\s*$")
_EDGE = re.compile(r'(?:^|,)\s*le="([^"]*)"')


@dataclass(frozen=True, kw_only=True)
class EngineMetrics:
    """The names by which an engine tells of its traffic; of each tuple the first that is there counts."""

    title: str
    prefix: str
    inputs: str  # histogram of the lengths of prompts
    outputs: str  # histogram of the lengths of answers
    requests: tuple[str, ...] = ()
    input_tokens: tuple[str, ...] = ()
    output_tokens: tuple[str, ...] = ()
    hits: tuple[str, ...] = ()
    looked_up: tuple[str, ...] = ()
    fix: str = ""  # what switches more on


ENGINES = (
    EngineMetrics(
        title="vLLM",
        prefix="vllm:",
        inputs="vllm:request_prompt_tokens",
        outputs="vllm:request_generation_tokens",
        requests=("vllm:request_success_total", "vllm:request_success"),
        input_tokens=("vllm:prompt_tokens_total", "vllm:prompt_tokens"),
        output_tokens=("vllm:generation_tokens_total", "vllm:generation_tokens"),
        hits=("vllm:prefix_cache_hits_total", "vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits"),
        looked_up=(
            "vllm:prefix_cache_queries_total",
            "vllm:prefix_cache_queries",
            "vllm:gpu_prefix_cache_queries_total",
            "vllm:gpu_prefix_cache_queries",
        ),
    ),
    EngineMetrics(
        title="SGLang",
        prefix="sglang:",
        inputs="sglang:prompt_tokens_histogram",
        outputs="sglang:generation_tokens_histogram",
        requests=("sglang:num_requests_total",),
        input_tokens=("sglang:prompt_tokens_total",),
        output_tokens=("sglang:generation_tokens_total",),
        hits=("sglang:cached_tokens_total",),
        looked_up=("sglang:prompt_tokens_total",),
        fix="Start SGLang with --enable-metrics --collect-tokens-histogram for the lengths themselves",
    ),
    EngineMetrics(
        title="llama.cpp",
        prefix="llamacpp:",
        inputs="",
        outputs="",
        input_tokens=("llamacpp:prompt_tokens_total",),
        hits=("llamacpp:prompt_tokens_cached_total",),
        output_tokens=("llamacpp:tokens_predicted_total",),
        fix="Read the live address for a while: --traffic-over 5m",
    ),
)


@dataclass
class MetricsPage:
    """One page, or the growth from one to another.

    Attributes:
        where: Its place, for messages.
        values: Name -> value, summed over models, engines and ranks.
        buckets: Name of a histogram -> upper end -> how many lie below.
    """

    where: str
    values: dict[str, float] = field(default_factory=dict)
    buckets: dict[str, dict[float, float]] = field(default_factory=dict)

    @property
    def engine(self) -> EngineMetrics:
        """Whose page it is.

        Raises:
            ConfigError: of none that is known.
        """
        names = (*self.values, *self.buckets)
        for engine in ENGINES:
            if any(name.startswith(engine.prefix) for name in names):
                return engine
        titles = ", ".join(engine.title for engine in ENGINES)
        rule = f"has no metrics of {titles}"
        raise ConfigError(Fault(where=self.where, rule=rule, fix="Give the /metrics address of the server itself, or a copy of that page"))

    def first(self, names: Sequence[str]) -> float | None:
        return next((self.values[name] for name in names if name in self.values), None)

    def since(self, before: MetricsPage) -> MetricsPage:
        """What has come since then.

        Raises:
            ConfigError: a counter has become smaller.
        """
        values = {name: value - before.values.get(name, 0.0) for name, value in self.values.items()}
        buckets = {
            name: {edge: count - before.buckets.get(name, {}).get(edge, 0.0) for edge, count in counts.items()}
            for name, counts in self.buckets.items()
        }
        engine = self.engine
        counters = {f"{engine.inputs}_count", f"{engine.outputs}_count", *engine.requests, *engine.input_tokens, *engine.output_tokens}
        if lower := [name for name in values if name in counters and values[name] < 0]:
            rule = "has become smaller: the server was started anew in between, or the pages are of two servers or in the wrong order"
            raise ConfigError(
                Fault(where=self.where, field=lower[0], rule=rule, fix="Give two pages of one run of the server, the older first")
            )
        return MetricsPage(self.where, values, buckets)


def read_page(text: str, where: str) -> MetricsPage:
    """A page in Prometheus' text format.

    Raises:
        ConfigError: it is something else.
    """
    values: defaultdict[str, float] = defaultdict(float)
    buckets: defaultdict[str, defaultdict[float, float]] = defaultdict(lambda: defaultdict(float))
    prefixes = {engine.prefix.replace(":", "_"): engine.prefix for engine in ENGINES}
    lines = text.splitlines()
    if len(lines) > MOST_LINES:
        raise ConfigError(Fault(where=where, rule=f"a page has at most {MOST_LINES:,} lines", value=f"{len(lines):,}"))
    broken, good = 0, 0
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.match(line)
        try:
            value = float(match["value"]) if match else math.nan
        except ValueError:
            match = None
        if match is None:
            broken += 1
            continue
        good += 1
        name = match["name"]
        for written, prefix in prefixes.items():  # collectors write _ for :
            name = prefix + name.removeprefix(written) if name.startswith(written) else name
        edge = _EDGE.search(match["labels"] or "") if name.endswith("_bucket") else None
        if not math.isfinite(value):
            continue
        if edge is not None:
            _add_bucket(buckets[name.removesuffix("_bucket")], edge[1], value)
        elif name.startswith(tuple(prefixes.values())):
            values[name] += value
    if broken > good:
        fix = "Give the /metrics address of the server, or a copy of that page"
        raise ConfigError(Fault(where=where, rule="is no page of metrics in Prometheus' text format", value=_start(text), fix=fix))
    return MetricsPage(
        where, dict(values), {name: dict(counts) for name, counts in buckets.items() if name.startswith(tuple(prefixes.values()))}
    )


def window_of(page: MetricsPage, name: str, seconds: float | None, gap_variation: float | None = None) -> TrafficWindow:
    """The traffic that a page, or the growth between two, tells of.

    Raises:
        ConfigError: it tells too little.
    """
    engine = page.engine
    inputs, outputs = _lengths(page, engine.inputs), _lengths(page, engine.outputs)
    count = _count(page, engine)
    if inputs is None or outputs is None:
        tokens = [page.first(names) for names in (engine.input_tokens, engine.output_tokens)]
        if not count or not tokens[0] or not tokens[1]:
            rule = f"tells no lengths of requests ({engine.title})"
            if engine.inputs and not count:
                rule = f"no request has been answered ({engine.title})"
            raise ConfigError(
                Fault(where=page.where, rule=rule, fix=engine.fix or "Wait until there was traffic, or give --traffic-over 5m")
            )
        means = [max(1.0, total / count) for total in tokens if total is not None]
        inputs, outputs = (TokenLengths(bins=((mean, mean, 1.0),)) for mean in means)
    hits, looked_up = page.first(engine.hits), page.first(engine.looked_up)
    share = min(0.999, max(0.0, hits / looked_up)) if hits is not None and looked_up else None
    return TrafficWindow(
        name=name, requests=count, seconds=seconds, inputs=inputs, outputs=outputs, gap_variation=gap_variation, prefix_share=share
    )


def variation_of(counts: Sequence[float]) -> float | None:
    """Variation of the gaps between requests, from how many came in each of many equal intervals; None of too few.

    For arrivals whose gaps are independent, the variance of the numbers over their mean is the square of it.
    """
    numbers = np.asarray(counts, dtype=float)
    if len(numbers) < LEAST_INTERVALS or numbers.sum() < LEAST_INTERVALS:
        return None
    return math.sqrt(float(numbers.var(ddof=1) / numbers.mean()))


def _add_bucket(found: defaultdict[float, float], edge: str, value: float) -> None:
    try:
        found[float(edge)] += value
    except ValueError:
        return


def _count(page: MetricsPage, engine: EngineMetrics) -> float:
    own = page.values.get(f"{engine.outputs}_count") if engine.outputs else None
    return float(own if own is not None else page.first(engine.requests) or 0.0)


def _lengths(page: MetricsPage, name: str) -> TokenLengths | None:
    histogram = page.buckets.get(name) if name else None
    if not histogram:
        return None
    edges = sorted(histogram)
    below = np.maximum.accumulate([max(0.0, histogram[edge]) for edge in edges])
    counts = np.diff([0.0, *below])
    if counts.sum() <= 0:
        return None
    total = page.values.get(f"{name}_sum")
    return TokenLengths.counted(edges, counts.tolist(), total if total and total > 0 else None)


def _start(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line[:77] + "..." if len(line) > 80 else line


__all__ = ["ENGINES", "EngineMetrics", "MetricsPage", "read_page", "variation_of", "window_of"]
