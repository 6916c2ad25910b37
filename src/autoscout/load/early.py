"""Stopping a load of a given size as soon as the trial cannot win any more."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

from autoscout.core.clock import RealClock
from autoscout.core.task import Limit
from autoscout.core.to_beat import ToBeat, latency_at_least, rate_at_most
from autoscout.load.answers import Answer, statistic
from autoscout.load.load import Seen
from autoscout.load.plan import LATENCIES

LOOK_S = 0.5
SECONDS = 6.0  # of a load after which its rate so far is believed; the first looks do not count, while the server fills
CLOCK = RealClock()


class EarlyStop:
    """Looks at a load now and then.

    Args:
        to_beat: What is to beat; None never stops.
        limits: Of the goal.
    """

    def __init__(self, to_beat: ToBeat | None, limits: Sequence[Limit]) -> None:
        self._to_beat = to_beat
        self._names = {limit.metric for limit in limits} | ({to_beat.metric} | {one.metric for one in to_beat.limits} if to_beat else set())
        self._looked_s = 0.0
        self._tokens: list[tuple[float, int]] = []  # when, and how many pieces had come by then
        self.why = ""
        self.bounds: dict[str, float] = {}

    def lost(self, seen: Seen) -> bool:
        """Whether the load may stop; `why` and `bounds` then say so."""
        now_s = CLOCK.span_s()
        if self._to_beat is None or not seen.planned_requests or now_s - max(self._looked_s, seen.begun_s) < LOOK_S:
            return False
        self._looked_s = now_s
        bounds = self._bounds(seen, now_s)
        self.why = self._to_beat.lost(bounds)
        self.bounds = bounds if self.why else {}
        return bool(self.why)

    def _bounds(self, seen: Seen, now_s: float) -> dict[str, float]:
        assert self._to_beat is not None
        elapsed_s = now_s - seen.begun_s
        found = {
            "output_throughput": rate_at_most(seen.planned_tokens, elapsed_s),
            "request_throughput": rate_at_most(seen.planned_requests, elapsed_s),
            "goodput": rate_at_most(seen.planned_requests, elapsed_s),
        }
        self._tokens.append((now_s, sum(len(answer.times_s) for answer in seen.answers)))
        if seen.closed and elapsed_s > SECONDS:
            rates = [(later[1] - earlier[1]) / (later[0] - earlier[0]) for earlier, later in pairwise(self._tokens[2:])]
            likely = self._to_beat.likely({"output_throughput": [rate * _tokens_per_piece(seen.answers) for rate in rates]})
            found |= {name: min(value, found[name]) for name, value in likely.items()}
        for name in self._names:
            named, _, latency = name.partition("_")
            if latency in ("ttft_ms", "e2el_ms"):
                ages_ms = [1000 * _age_s(answer, latency, now_s) for answer in seen.answers]
                found[name] = latency_at_least(ages_ms, seen.planned_requests, partial(statistic, name=named))
        return {name: value for name, value in found.items() if name in self._names}


def _tokens_per_piece(answers: Sequence[Answer]) -> float:
    """Tokens that come with one piece of a stream: one, unless the engine sends several at once."""
    done = [answer for answer in answers if answer.good]
    return sum(answer.tokens for answer in done) / max(1, sum(len(answer.times_s) for answer in done)) if done else 1.0


def _age_s(answer: Answer, latency: str, now_s: float) -> float:
    assert latency in LATENCIES
    if latency == "ttft_ms":
        return (answer.times_s[0] if answer.times_s else now_s) - answer.sent_s
    return (now_s if answer.under_way else answer.times_s[-1] if answer.times_s else now_s) - answer.sent_s
