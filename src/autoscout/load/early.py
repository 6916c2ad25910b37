"""Stopping a load of a given size as soon as the trial cannot win any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise

from autoscout.core.clock import RealClock
from autoscout.core.task import Limit
from autoscout.core.to_beat import Race, ToBeat, latency_at_least, rate_at_most
from autoscout.load.answers import Reply, statistic
from autoscout.load.load import LoadRecord
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
        self._race = Race(to_beat)
        self._looked_s = 0.0
        self._tokens: list[tuple[float, int]] = []  # when, and how many pieces had come by then

    @property
    def why(self) -> str:
        """Why the trial cannot win any more; empty while it can."""
        return self._race.why

    @property
    def bounds(self) -> dict[str, float]:
        """The best that its metrics can still reach, once it is lost."""
        return self._race.bounds

    def is_lost_after(self, repeats: Sequence[Mapping[str, float]], planned: int) -> bool:
        """Whether the metrics of the repeats so far say that further ones are in vain."""
        self._tokens.clear()
        return self._race.lost(repeats, planned)

    def is_lost(self, record: LoadRecord, repeats: Sequence[Mapping[str, float]] = ()) -> bool:
        """Whether the load may stop; `why` and `bounds` then say so.

        Args:
            record: Of the load under way.
            repeats: Metrics of those before it.
        """
        now_s = CLOCK.span_s()
        if self._to_beat is None or not record.planned_requests or now_s - max(self._looked_s, record.begun_s) < LOOK_S:
            return False
        self._looked_s = now_s
        bounds = self._bounds(record, now_s)
        if repeats:
            return self._race.lost([*repeats, bounds])
        self._race.why = self._to_beat.lost(bounds)
        self._race.bounds = bounds if self.why else {}
        return bool(self.why)

    def _bounds(self, record: LoadRecord, now_s: float) -> dict[str, float]:
        assert self._to_beat is not None
        elapsed_s = now_s - record.begun_s
        bounds = {
            "output_throughput": rate_at_most(record.planned_tokens, elapsed_s),
            "total_token_throughput": rate_at_most(record.planned_tokens + record.planned_inputs, elapsed_s),
            "request_throughput": rate_at_most(record.planned_requests, elapsed_s),
            "goodput": rate_at_most(record.planned_requests, elapsed_s),
        }
        self._tokens.append((now_s, sum(len(answer.times_s) for answer in record.answers)))
        pieces = _tokens_per_piece(record.answers)
        if record.closed and elapsed_s > SECONDS and pieces:
            rates = [(later[1] - earlier[1]) / (later[0] - earlier[0]) for earlier, later in pairwise(self._tokens[2:])]
            likely = self._to_beat.likely({"output_throughput": [rate * pieces for rate in rates]})
            bounds |= {name: min(value, bounds[name]) for name, value in likely.items()}
        for name in self._names:
            named, _, latency = name.partition("_")
            if latency in ("ttft_ms", "e2el_ms"):
                ages_ms = [1000 * _age_s(answer, latency, now_s) for answer in record.answers]
                bounds[name] = latency_at_least(ages_ms, record.planned_requests, partial(statistic, name=named))
        return {name: value for name, value in bounds.items() if name in self._names}


def _tokens_per_piece(answers: Sequence[Reply]) -> float:
    """Tokens that come with one piece of a stream: one, unless the engine sends several at once; 0 while no answer has been counted."""
    done = [answer for answer in answers if answer.is_complete]
    return sum(answer.tokens for answer in done) / max(1, sum(len(answer.times_s) for answer in done)) if done else 0.0


def _age_s(answer: Reply, latency: str, now_s: float) -> float:
    assert latency in LATENCIES
    if latency == "ttft_ms":
        return (answer.times_s[0] if answer.times_s else now_s) - answer.sent_s
    return (now_s if answer.is_under_way else answer.times_s[-1] if answer.times_s else now_s) - answer.sent_s
