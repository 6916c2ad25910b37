"""The page under /metrics of vLLM, SGLang or llama.cpp: read from the live address, once or over a while, or saved in a file."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from autoscout.core.clock import Clock
from autoscout.core.errors import ConfigError, Fault
from autoscout.traffic import http
from autoscout.traffic.description import MOST_PAIRS, Traffic, TrafficWindow
from autoscout.traffic.exposition import ENGINES, LEAST_INTERVALS, MetricsPage, read_page, variation_of, window_of
from autoscout.traffic.lengths import TokenLengths
from autoscout.traffic.requests import sample
from autoscout.traffic.slots import SlotWatch

TITLE = "a page of metrics (vLLM, SGLang, llama.cpp), live or saved"
LEAST_S = 1.0  # between two scrapes of an engine that counts lengths itself
QUICK_S = 0.1  # likewise of one that only adds up: each growth should be of one request
SCRAPES = 60  # over a while
CROWDED = 0.5  # share of the intervals with a request above which the growth of an interval is of several
LEAST_STEPS = 20  # requests, for lengths that are taken from the growth of totals
START = "process_start_time_seconds"
_IS_PAGE = re.compile(rf"^(?:# (?:HELP|TYPE) |(?:{'|'.join(engine.prefix.rstrip(':') for engine in ENGINES)})[:_])", re.MULTILINE)
_SEPARATOR = re.compile(r"^# EOF\s*$", re.MULTILINE)


def takes(text: str, first: Any) -> bool:  # noqa: ARG001 - the same for all sources
    """Whether this is one."""
    return _IS_PAGE.search(text[:100_000]) is not None


def read(path: Path, text: str, windows: int) -> Traffic:  # noqa: ARG001 - the same for all sources
    """The traffic of a saved page since the start of the server; of two pages with `# EOF` between them, what came between."""
    parts = [part for part in _SEPARATOR.split(text) if part.strip()]
    pages = [read_page(part, str(path)) for part in parts]
    page = pages[-1].since(pages[0]) if len(pages) > 1 else pages[0]
    return Traffic(source=f"metrics of {page.engine.title} in {path.name}", windows=(window_of(page, "all", None),))


def takes_address(source: str) -> bool:
    """Whether this is an address of such a page."""
    return http.is_address(source)


def fetch(source: str, over_s: float, clock: Clock) -> Traffic:
    """The traffic of a live server: since its start, or over a while."""
    address = source if urlsplit(source).path.strip("/") else source.rstrip("/") + "/metrics"
    where = http.without_secrets(address)
    first_text = http.get(address)
    first = read_page(first_text, where)
    engine = first.engine
    if over_s <= 0:
        window = window_of(first, "since the start", _age_s(first_text, clock))
        return Traffic(source=f"metrics of {engine.title} at {where}", windows=(window,))
    step_s = max(LEAST_S, over_s / SCRAPES) if engine.inputs else QUICK_S
    slots = None if engine.inputs else SlotWatch(address.removesuffix("/metrics") + "/slots")
    slots = slots if slots is not None and slots.look() else None
    pages, times_s = [first], [clock.span_s()]
    while times_s[-1] - times_s[0] < over_s:
        clock.sleep(max(0.0, times_s[-1] + step_s - clock.span_s()))
        if slots is not None:
            slots.look()
        pages.append(read_page(http.get(address), where))
        times_s.append(clock.span_s())
    growth = [after.since(before) for before, after in pairwise(pages)]
    seconds, name = times_s[-1] - times_s[0], f"{times_s[-1] - times_s[0]:.0f} s"
    whole = pages[-1].since(first)
    if engine.inputs:
        window = window_of(whole, name, seconds, variation_of([page.values.get(f"{engine.outputs}_count", 0.0) for page in growth]))
    elif slots is not None and len(slots.new) >= LEAST_STEPS:
        window = _of_slots(slots, whole, name, seconds)
    else:
        window = _stepwise(growth, whole, name, seconds)
    return Traffic(source=f"metrics of {engine.title} at {where}, over {seconds:.0f} s", windows=(window,))


def _of_slots(slots: SlotWatch, whole: MetricsPage, name: str, seconds: float) -> TrafficWindow:
    """Lengths of the requests that were seen in the slots of llama.cpp."""
    engine = whole.engine
    cached, answers = (whole.first(names) or 0.0 for names in (engine.hits, engine.output_tokens))
    prompts = (whole.first(engine.input_tokens) or 0.0) + cached
    pairs = slots.pairs(answers / max(1.0, prompts + answers))
    share = min(0.999, cached / max(1.0, prompts)) if whole.first(engine.hits) is not None else None
    return TrafficWindow(name=name, requests=float(len(slots.new)), seconds=seconds, pairs=sample(pairs, MOST_PAIRS), prefix_share=share)


def _stepwise(growth: Sequence[MetricsPage], whole: MetricsPage, name: str, seconds: float) -> TrafficWindow:
    """TokenLengths from the growth of totals: llama.cpp adds a prompt when it has read it, and an answer when it has ended.

    Where some intervals hold several requests, fewer were seen than there were: Poisson arrivals tell how many, and the lengths are
    shorter by as much.
    """
    engine = whole.engine
    read = [(page.first(engine.input_tokens) or 0.0) + (page.first(engine.hits) or 0.0) for page in growth]  # prompts read or remembered
    answer_tokens = [page.first(engine.output_tokens) or 0.0 for page in growth]
    inputs, outputs = ([value for value in values if value > 0] for values in (read, answer_tokens))
    if min(len(inputs), len(outputs)) < LEAST_STEPS:
        rule = f"{min(len(inputs), len(outputs))} requests were seen in {seconds:.0f} s; {LEAST_STEPS} are needed for their lengths"
        raise ConfigError(Fault(where=whole.where, rule=rule, fix="Give a longer --traffic-over"))
    busy = max(len(inputs), len(outputs)) / len(growth)
    if busy > CROWDED:
        rule = f"{engine.title} tells totals only, and {busy:.0%} of intervals of {QUICK_S:g} s hold requests: they run together"
        raise ConfigError(Fault(where=whole.where, rule=rule, fix="Give an access log instead, or read it in a quieter hour"))
    counts = [float(value > 0) for value in answer_tokens]
    size = max(1, len(counts) // SCRAPES)
    grouped = [sum(counts[at : at + size]) for at in range(0, len(counts) - size + 1, size)]
    return TrafficWindow(
        name=name,
        requests=_number_in(len(outputs), len(growth)),
        seconds=seconds,
        inputs=TokenLengths.of([value * len(inputs) / _number_in(len(inputs), len(growth)) for value in inputs]),
        outputs=TokenLengths.of([value * len(outputs) / _number_in(len(outputs), len(growth)) for value in outputs]),
        gap_variation=variation_of(grouped) if len(grouped) >= LEAST_INTERVALS else None,
        prefix_share=min(0.999, (whole.first(engine.hits) or 0.0) / sum(read)) if whole.first(engine.hits) is not None else None,
    )


def _number_in(busy: int, intervals: int) -> float:
    """Requests of Poisson arrivals that fall into this number of intervals."""
    return -intervals * math.log1p(-busy / intervals)


def _age_s(text: str, clock: Clock) -> float | None:
    """How long the server has run, where it says since when."""
    match = re.search(rf"^{START} (\S+)", text, re.MULTILINE)
    try:
        age_s = clock.now_s() - float(match[1]) if match else 0.0
    except ValueError:
        return None
    return age_s if age_s > 0 else None


__all__ = ["TITLE", "fetch", "read", "takes", "takes_address"]
