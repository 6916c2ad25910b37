"""From single requests, as logs and traces have them, to a traffic description."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from statistics import median

import numpy as np

from autoscout.core.errors import ConfigError, Fault
from autoscout.traffic.description import MOST_PAIRS, Traffic, TrafficWindow
from autoscout.traffic.typical import mark_typical

LEAST_REQUESTS = 100  # of a window: below it a share of 5 % is of fewer than five requests
LEAST_WINDOW_S = 900.0  # a shorter span is one window
USUAL_WINDOWS = 24
MANY_PAIRS = 150  # of each of several windows
FIRST_YEAR_S = 946_684_800.0  # the year 2000: a larger time is a date, a smaller one counts from the beginning of a trace


@dataclass(frozen=True, slots=True)
class SeenRequest:
    """One request, as somebody has noted it down.

    Attributes:
        time_s: When it came, in seconds from any beginning.
        input_tokens: Of its prompt.
        output_tokens: Of its answer.
        blocks: Numbers of parts of its prompt that are equal where their numbers are.
        cached_tokens: Of its prompt, that the server had seen before; None where that is not known.
        session: What the requests of a session share; empty where that is not known.
        ended_s: When it was answered; None where that is not known.
        agent: Which of the agents of its session asked, that work at the same time.
    """

    time_s: float
    input_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()
    cached_tokens: int | None = None
    session: str = ""
    ended_s: float | None = None
    agent: str = ""


def traffic_of(requests: Sequence[SeenRequest], source: str, windows: int = 0) -> Traffic:
    """The description of requests.

    Args:
        requests: All of them.
        source: Where they come from, in words.
        windows: In how many equal spans of time they are described; 0 for a number that suits them.

    Raises:
        ConfigError: there are none.
    """
    if not requests:
        raise ConfigError(Fault(where=source, rule="holds no request with a prompt and an answer"))
    ordered = sorted(requests, key=lambda request: request.time_s)
    begin_s, span_s = ordered[0].time_s, ordered[-1].time_s - ordered[0].time_s
    count = windows or int(min(USUAL_WINDOWS, span_s / LEAST_WINDOW_S, len(ordered) / LEAST_REQUESTS))
    count = max(1, count) if span_s > 0 else 1
    parts: list[list[SeenRequest]] = [[] for _ in range(count)]
    for request in ordered:
        parts[min(count - 1, int((request.time_s - begin_s) / max(span_s, 1e-9) * count))].append(request)
    hits = _hits(ordered)
    enough = [(number, part) for number, part in enumerate(parts) if len(part) >= min(LEAST_REQUESTS, len(ordered) / (2 * count))]
    made = [
        _window(
            part, _name(begin_s + span_s * number / count, begin_s, count), span_s / count, MOST_PAIRS if count == 1 else MANY_PAIRS, hits
        )
        for number, part in enough
    ]
    return mark_typical(Traffic(source=source[:300], windows=tuple(made)))


def sample(pairs: Sequence[tuple[int, int]], most: int) -> tuple[tuple[int, int], ...]:
    """As many of the pairs that stand for all: evenly from those in order of their prompts, and of answers among like prompts."""
    if len(pairs) <= most:
        return tuple(sorted(pairs))
    strata = max(1, round(math.sqrt(most)))
    by_input = sorted(pairs)
    ordered = [
        pair
        for number, part in enumerate(np.array_split(np.array(by_input), strata))
        for pair in sorted(map(tuple, part.tolist()), key=lambda pair: pair[1] * (1 if number % 2 else -1))
    ]
    places = ((np.arange(most) + 0.5) * len(ordered) / most).astype(int).tolist()
    return tuple(sorted((int(ordered[place][0]), int(ordered[place][1])) for place in places))


def _window(part: Sequence[SeenRequest], name: str, seconds: float, most: int, hits: dict[int, int]) -> TrafficWindow:
    gaps = np.diff([request.time_s for request in part])
    variation = float(np.std(gaps) / np.mean(gaps)) if len(gaps) >= LEAST_REQUESTS / 2 and np.mean(gaps) > 0 else None
    reuse = [(hits.get(id(request), request.cached_tokens), request.input_tokens) for request in part]
    cached = [(min(hit, tokens), tokens) for hit, tokens in reuse if hit is not None]
    share = sum(hit for hit, _ in cached) / sum(tokens for _, tokens in cached) if cached else None
    turns, think_s, branches = _sessions(part)
    return TrafficWindow(
        name=name,
        requests=float(len(part)),
        seconds=seconds if seconds > 0 else None,
        pairs=sample([(request.input_tokens, request.output_tokens) for request in part], most),
        gap_variation=variation,
        prefix_share=min(share, 0.999) if share is not None else None,
        turns=turns,
        think_s=think_s,
        branches=branches,
    )


def _hits(ordered: Sequence[SeenRequest]) -> dict[int, int]:
    """Tokens at the beginning of each prompt whose blocks an earlier one has had; a prompt without blocks is left out."""
    blocks: set[tuple[str, int]] = set()
    hits: dict[int, int] = {}
    for request in ordered:
        if not request.blocks:
            continue
        keys = [(request.session if request.agent else "", block) for block in request.blocks]
        old = next((place for place, key in enumerate(keys) if key not in blocks), len(keys))
        hits[id(request)] = int(request.input_tokens * old / len(keys))
        blocks.update(keys)
    return hits


def _sessions(part: Sequence[SeenRequest]) -> tuple[float | None, float | None, float | None]:
    """Requests of a session, the pause between an answer and the next of them, and how many are under way together."""
    sessions: defaultdict[str, list[SeenRequest]] = defaultdict(list)
    for request in part:
        if request.session:
            sessions[request.session].append(request)
    if not sessions:
        return None, None, None
    pauses, together = [], []
    for requests in sessions.values():
        for before, after in pairwise(requests):
            if before.ended_s is not None and after.time_s >= before.ended_s:
                pauses.append(after.time_s - before.ended_s)
        together += [
            sum(other.time_s <= one.time_s < (other.ended_s or other.time_s) for other in requests) + (one.ended_s is None)
            for one in requests
        ]
    turns = len([request for request in part if request.session]) / len(sessions)
    return turns, median(pauses) if pauses else None, max(1.0, float(np.mean(together)))


def _name(at_s: float, begin_s: float, count: int) -> str:
    """Of a window: the date where there are dates, else hours from the beginning."""
    if count == 1:
        return "all"
    if at_s >= FIRST_YEAR_S:
        return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"hour {(at_s - begin_s) / 3600:.2f}"


__all__ = ["SeenRequest", "sample", "traffic_of"]
