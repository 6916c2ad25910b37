"""The highest request rate that keeps the SLO, found by short probes at rates that close in on it, and confirmed by a longer one.

A probe sends requests at one rate for some seconds and counts those that arrive once the server is filled. It ends as soon as the SLO
is broken beyond repair. Probes at all rates use the same lengths and the same arrivals, scaled, so that they differ by the rate only.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from autoscout.core.clock import Clock, RealClock
from autoscout.core.task import Limit
from autoscout.load.answers import BEYOND, Reply, latencies, statistics, summary
from autoscout.load.client import GIVEN_UP
from autoscout.load.load import LoadRecord
from autoscout.load.plan import LATENCIES, TrialGoal, split_metric

GROW, SHRINK = 1.4, 0.6  # next rate while nothing has failed yet, or nothing has held
WIDE = 1.15  # rate that fails over rate that holds, above which closing in is worth more than a long last probe
LEAP = 2.5  # instead of GROW while every limit is relaxed
SMALL_STEPS = 3  # from a known capacity, each of which is larger than the one before
FILL_S = (0.5, 8.0)  # bounds of the time that a probe waits until the server is filled
CLOSE = 0.95  # share of a limit above which a higher rate is not worth another probe
RELAXED = 0.5  # share of every limit below which the capacity is far away
EASY = 0.8  # share of every limit below which a rate holds with ease
PROBE_S = (5.0, 15.0)  # shortest and longest time in which requests of a probe count
CONFIRM_S = (15.0, 40.0)  # the same for the last probe
PROBE_REQUESTS = 120  # that should count in a probe, if that takes no longer than the longest time
FAILED_SHARE = 0.01  # of requests that may fail before a rate does not hold
BACKLOG = 0.1  # of the arrivals: more requests than this that wait longer and longer mean that the server does not keep up
SHORTFALL = 0.05  # of the requests that were due: sessions that ask less than that are held up by answers that come too late
FEW_SHORT = 2  # requests fewer than were due mean nothing
LEAST_RATE = 0.05  # requests a second; below it a search would take hours


@dataclass
class RateProbe:
    """What one rate came to."""

    rate: float
    held: bool
    tightness: float  # the largest share that a metric took of its limit; infinite where it was broken beyond repair
    why: str = ""
    metrics: dict[str, float] = field(default_factory=dict)
    confirmed: bool = False
    duration_s: float = 0.0
    counted: list[Reply] = field(default_factory=list)  # its requests
    ended: list[Reply] = field(default_factory=list)  # those that were answered since the first of these arrived
    count_s: float = 0.0  # the time in which they arrived
    offered: float = 0.0  # requests a second that were sent in it
    is_short: bool = False  # fewer requests were sent than were due

    def summary(self, limits: Sequence[Limit]) -> dict[str, float]:
        """The metrics at this rate.

        Only a long probe waits for all its answers. At the end of a short one the slow requests are under way, and those that were
        answered are the fast ones: there, what the server did in that time counts, and the first tokens of all requests.
        """
        if self.confirmed:
            return summary([answer for answer in self.counted if answer.error != GIVEN_UP], self.count_s, limits)
        failed = [answer for answer in self.counted if answer.error and answer.error != GIVEN_UP]
        first = {name: value for name, value in self.metrics.items() if name.endswith("_ttft_ms")}
        return summary([*self.ended, *failed], self.count_s, limits) | first

    def to_json(self) -> dict[str, object]:
        data = {name: value for name, value in vars(self).items() if name not in ("metrics", "counted", "ended")}
        return {**data, "tightness": self.tightness if math.isfinite(self.tightness) else None}


@dataclass(frozen=True, kw_only=True)
class ProbeWindow:
    """When a probe's requests count."""

    ramp_s: float  # until the server is filled
    count_s: float
    drain: bool  # wait for the last token of every request
    answer_s: float = 0.0  # how long an answer takes at about that rate

    @property
    def arrive_s(self) -> float:
        return self.ramp_s + self.count_s


Measure = Callable[[float, ProbeWindow, Callable[[LoadRecord], bool]], Awaitable[LoadRecord]]
"""Sends requests at a rate for the time of a window, with a look several times a second whether to stop."""


class CapacitySearch:
    """Looks for the highest rate that holds.

    Args:
        goal: The limits, and how long it may take.
        measure: See `Measure`.
        answer_s: How long one answer takes, roughly: the time to fill the server.
        output_tokens: Of an answer, on average.
        known: Whether the first rate is what the same server came to before: the steps from there are small.
        to_beat: A rate; a server that does not hold it is of no interest, and the search ends there.
        clock: Where time comes from.
    """

    def __init__(
        self,
        goal: TrialGoal,
        measure: Measure,
        *,
        answer_s: float,
        output_tokens: float,
        known: bool = False,
        to_beat: float = 0.0,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or RealClock()
        self._goal = goal
        self._limits = [limit for limit in goal.limits if limit.op in ("<=", "<")]
        self._measure = measure
        self._answer_s = self._mean_answer_s = answer_s
        self._tokens = output_tokens
        self._known = known
        self._to_beat = to_beat
        self._deadline_s = self._clock.span_s() + goal.search_limit_s
        self.probes: list[RateProbe] = []

    @property
    def low(self) -> RateProbe | None:
        """The highest rate that held below all that did not."""
        held = [probe for probe in self.probes if probe.held and (self.high is None or probe.rate < self.high)]
        return max(held, key=lambda probe: (probe.rate, probe.confirmed), default=None)

    @property
    def high(self) -> float | None:
        """The lowest rate that did not hold, and was not overruled by a later probe at that rate or above."""
        lowest, overruled = None, 0.0
        for probe in reversed(self.probes):
            if probe.held:
                overruled = max(overruled, probe.rate)
            elif probe.rate > overruled:
                lowest = probe.rate if lowest is None else min(lowest, probe.rate)
        return lowest

    async def run(self, first: float) -> RateProbe | None:
        """The probe at the capacity; None when no rate held, or the one to beat did not."""
        rate = max(LEAST_RATE, self._to_beat or first)
        while True:
            probe = await self._probe(rate, self._short(rate))
            if (doubted := self._doubted(probe)) is not None:
                rate = doubted
                continue
            low = self.low
            if low is None and (self._to_beat or rate <= LEAST_RATE or self._left_s() < 0):
                return None
            if low is not None and (self._is_close() or self._is_late(rate, low.rate)):
                return await self._confirm(low.rate)
            rate = self._next(probe)

    def _doubted(self, probe: RateProbe) -> float | None:
        """A rate that failed in a single probe and is likely to hold: it is at most what the same server held before, or the one to beat,
        or one close below holds with ease. One stall of a cold server or of the machine breaks a short probe. Or its sessions asked too
        little, because answers took longer than was known before."""
        high = self.high
        if high is None or self._left_s() < 0 or sum(one.rate == high for one in self.probes) > 1:
            return None
        likely = not probe.held and high <= self.probes[0].rate and (self._known or self._to_beat > 0)
        close = probe.held and probe.tightness < EASY and high / probe.rate < GROW
        return high if likely or close or (probe.is_short and probe.rate == high) else None

    async def _confirm(self, rate: float) -> RateProbe | None:
        """A longer probe, at lower and lower rates until one holds; when time is up, what holds in a short one."""
        while True:
            probe = await self._probe(rate, self._long(rate), confirm=True)
            if probe.held or rate <= LEAST_RATE:
                return self.low
            if self._left_s() < 0 and self.low is not None:
                return await self._settle(self.low)
            rate = max(LEAST_RATE, rate * (1 - self._goal.precision))

    async def _settle(self, low: RateProbe) -> RateProbe:
        """What holds in a short probe, not far below the rate that did not."""
        while self.high is not None and self.high / low.rate > WIDE:
            rate = math.sqrt(low.rate * self.high)
            await self._probe(rate, self._short(rate))
            low = self.low or low
        return low

    def _is_late(self, rate: float, confirmed: float) -> bool:
        """Whether there is no time for another probe: a long one must follow it, unless the capacity may still lie far from the low end."""
        if self.high is None:
            return False
        if self.high / confirmed > WIDE:
            return self._left_s() < 0
        short, long = self._short(rate), self._long(confirmed)
        return self._left_s() < short.arrive_s + long.arrive_s + self._answer_s

    def _left_s(self) -> float:
        return self._deadline_s - self._clock.span_s()

    def _is_close(self) -> bool:
        low, high = self.low, self.high
        return low is not None and (low.tightness > CLOSE or (high is not None and high / low.rate - 1 < self._goal.precision))

    def _next(self, probe: RateProbe) -> float:
        low, high = self.low, self.high
        if self._known and (low is None or high is None) and (tried := len({one.rate for one in self.probes})) <= SMALL_STEPS:
            step = (1 + self._goal.precision) ** (2 * tried)
            return max(LEAST_RATE, probe.rate * step if high is None else probe.rate / step)
        if high is None:
            return probe.rate * (LEAP if probe.tightness < RELAXED else GROW)
        if low is None:
            return max(LEAST_RATE, high * SHRINK)
        return math.sqrt(low.rate * high)

    def _short(self, rate: float) -> ProbeWindow:
        far = self.high is None and self.low is not None and self.low.tightness < RELAXED  # a rough look is enough
        count_s = PROBE_S[0] if far else min(PROBE_S[1], max(PROBE_S[0], PROBE_REQUESTS / rate))
        return ProbeWindow(ramp_s=min(self._answer_s, count_s), count_s=count_s, drain=False, answer_s=self._mean_answer_s)

    def _long(self, rate: float) -> ProbeWindow:
        """Long enough for the percentiles of the SLO, within bounds."""
        needed = max((_needed(limit) for limit in self._limits), default=0.0)
        count_s = min(CONFIRM_S[1], max(CONFIRM_S[0], needed / rate, PROBE_REQUESTS / rate))
        return ProbeWindow(ramp_s=min(self._answer_s, count_s), count_s=count_s, drain=True, answer_s=self._mean_answer_s)

    async def _probe(self, rate: float, window: ProbeWindow, *, confirm: bool = False) -> RateProbe:
        judge = _ProbeJudge(self._limits, rate, window, self._tokens, self._clock)
        begun_s = self._clock.span_s()
        record = await self._measure(rate, window, judge.is_over)
        probe = judge.verdict(record)
        probe.confirmed, probe.duration_s = confirm and probe.held, self._clock.span_s() - begun_s
        probe.counted, probe.count_s = judge.counted(record), window.count_s
        probe.ended = [answer for answer in record.answers if answer.is_complete and answer.ended_s >= record.begun_s + window.ramp_s]
        counted_s = min(window.count_s, max(0.1, self._clock.span_s() - record.begun_s - window.ramp_s))
        probe.offered = record.sent(window.ramp_s, window.ramp_s + counted_s) / counted_s
        self._mean_answer_s = _mean_answer_s(probe.counted, self._clock.span_s()) or self._mean_answer_s
        ended_s = [answer.e2el_s for answer in probe.counted if answer.is_complete]
        if ended_s:  # under load an answer takes longer than it did alone
            self._answer_s = min(FILL_S[1], max(self._answer_s, median(ended_s)))
        self.probes.append(probe)
        return probe


class _ProbeJudge:
    """Whether one probe holds."""

    def __init__(self, limits: Sequence[Limit], rate: float, window: ProbeWindow, output_tokens: float, clock: Clock) -> None:
        self._clock = clock
        self._limits = limits
        self._rate = rate
        self._window = window
        self._requests = rate * window.count_s  # that will count
        self._tokens = self._requests * output_tokens
        self._why = ""
        self._known: dict[tuple[int, str, float], int] = {}  # late values of answers that have ended
        self._looked_s = 0.0
        self._now_s = math.inf
        self._waiting_half = self._waiting_end = -1

    def is_over(self, record: LoadRecord) -> bool:
        """Whether nothing can change any more."""
        now_s = self._now_s = self._clock.span_s()
        age_s = now_s - record.begun_s
        if self._waiting_half < 0 and age_s > self._window.ramp_s + self._window.count_s / 2:
            self._waiting_half = _waiting(record)
        if self._waiting_end < 0 and age_s >= self._window.arrive_s - 0.1:
            self._waiting_end = _waiting(record)
        if now_s - self._looked_s > 0.3:
            self._looked_s = now_s
            self._why = self._broken(self.counted(record), now_s) or self._failures(record)
        if self._why:
            return True
        return not self._window.drain and age_s >= self._window.arrive_s

    def verdict(self, record: LoadRecord) -> RateProbe:
        now_s = self._now_s if record.stopped else record.ended_s
        counted = self.counted(record)
        why = self._why or self._failures(record) or self._broken(counted, now_s)
        ended = [answer for answer in counted if answer.is_complete]
        if why:
            return RateProbe(rate=self._rate, held=False, tightness=math.inf, why=why)
        if not ended and not self._window.drain:  # answers take longer than a probe: judged by what there is of them
            ended = [answer for answer in counted if len(answer.times_s) > 1]
        if not ended:
            return RateProbe(rate=self._rate, held=False, tightness=math.inf, why="no request was answered in time")
        metrics = latencies(ended, self._limits)
        started = [answer.ttft_s for answer in counted if answer.times_s]
        metrics |= {f"{name}_ttft_ms": 1000 * value for name, value in statistics(started).items()}
        shares = {str(limit): metrics[limit.metric] / limit.value for limit in self._limits if limit.metric in metrics and limit.value > 0}
        tightest = max(shares, key=lambda name: shares[name], default="")
        tightness = shares.get(tightest, 0.0)
        why = f"{tightest} is broken: {metrics[tightest.split('<')[0]]:.4g}" if tightness > 1 else self._backlog()
        short = "" if why else self._shortfall(record)
        why = why or short
        return RateProbe(rate=self._rate, held=not why, tightness=tightness, why=why, metrics=metrics, is_short=bool(short))

    def counted(self, record: LoadRecord) -> list[Reply]:
        """The requests that arrived once the server was filled."""
        begin_s = record.begun_s + self._window.ramp_s
        return [answer for answer in record.answers if answer.sent_s >= begin_s]

    def _failures(self, record: LoadRecord) -> str:
        failed = [answer for answer in record.answers if answer.error and answer.error != GIVEN_UP]
        if len(failed) > FAILED_SHARE * max(self._requests, len(record.answers)):
            return f"{len(failed)} of {len(record.answers)} requests failed: {failed[0].error}"
        return ""

    def _broken(self, counted: Sequence[Reply], now_s: float) -> str:
        """Why a limit on a percentile cannot hold any more, whatever comes."""
        for limit in self._limits:
            statistic, latency, least = split_metric(limit.metric)
            if latency not in LATENCIES or statistic == "mean":
                continue
            share = 1 - float(statistic[1:]) / 100 if statistic.startswith("p") else 0.5
            total = self._tokens if latency == "itl_ms" else self._requests
            long_enough = [answer for answer in counted if answer.requested_tokens >= least]
            total *= len(long_enough) / max(1, len(counted))
            late = sum(self._late(answer, latency, limit.value / 1000, now_s) for answer in long_enough)
            if late > share * total + 1:
                what = "tokens" if latency == "itl_ms" else "requests"
                return f"{limit} cannot hold: {late} of about {total:.0f} {what} are late"
        return ""

    def _late(self, answer: Reply, latency: str, limit_s: float, now_s: float) -> int:
        """As `_late`, with answers that have ended counted once: looks happen in the loop that dates the tokens."""
        if answer.is_under_way or answer.error:
            return _late(answer, latency, limit_s, now_s)
        key = (id(answer), latency, limit_s)
        if key not in self._known:
            self._known[key] = _late(answer, latency, limit_s, now_s)
        return self._known[key]

    def _backlog(self) -> str:
        if self._waiting_half < 0 or self._waiting_end < 0:
            return ""
        grown, half_s = self._waiting_end - self._waiting_half, self._window.count_s / 2
        return f"requests queue up: {grown} more wait than {half_s:.1f} s before" if grown > max(5, BACKLOG * self._rate * half_s) else ""

    def _shortfall(self, record: LoadRecord) -> str:
        """Sessions ask again once they are answered: if that is late, the server is asked less than the rate says."""
        due, sent = (count(self._window.ramp_s, self._window.arrive_s) for count in (record.due, record.sent))
        is_short = due - sent > max(FEW_SHORT, SHORTFALL * due)
        return f"answers come too late for their sessions: {sent} of {due} requests could be sent" if is_short else ""


def _mean_answer_s(replies: Sequence[Reply], now_s: float) -> float:
    """All time that was spent on answers, also on those under way, over those that ended; 0 where none did."""
    ended = [reply for reply in replies if reply.is_complete]
    waited_s = sum(now_s - reply.sent_s for reply in replies if reply.is_under_way or reply.error == GIVEN_UP)
    return (sum(reply.e2el_s for reply in ended) + waited_s) / len(ended) if ended else 0.0


def _late(answer: Reply, latency: str, limit_s: float, now_s: float) -> int:
    """How many values of an answer are above a limit already; one that is under way counts as soon as it cannot be below."""
    times_s = answer.times_s
    if latency == "itl_ms":
        return sum(gap > limit_s for gap in answer.gaps_s)
    until_s = now_s if answer.is_under_way or answer.error else times_s[-1]
    if latency == "ttft_ms":
        return int((times_s[0] if times_s else until_s) - answer.sent_s > limit_s)
    if latency == "e2el_ms":
        return int(until_s - answer.sent_s > limit_s)
    length = answer.output_tokens or answer.requested_tokens
    return int(bool(times_s) and (until_s - times_s[0]) / max(1, length - 1) > limit_s)


def _waiting(record: LoadRecord) -> int:
    """Requests without a first token."""
    return sum(1 for answer in record.answers if not answer.times_s)


def _needed(limit: Limit) -> float:
    """Requests for the percentile of a limit."""
    statistic, latency, _ = split_metric(limit.metric)
    if not statistic.startswith("p") or latency == "itl_ms":
        return 0.0
    return BEYOND / (1 - float(statistic[1:]) / 100)
