"""The search for the capacity, on a server that is a formula, on a virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from autoscout.core import seeds
from autoscout.core.clock import VirtualClock
from autoscout.load.answers import Reply
from autoscout.load.capacity import CapacitySearch, ProbeWindow, RateProbe
from autoscout.load.load import LoadRecord, arrival_times
from autoscout.load.plan import Load, TrialGoal
from autoscout.load.workload import gaps

TOKENS = 100
SLO = ("p95_ttft_ms<=500", "p95_tpot_ms<=30")


class Formula:
    """Answers one request after the other in `1 / most` seconds each; time per token rises with the rate."""

    def __init__(self, most: float, seed: int = 0, noise: float = 0.03, cold_s: float = 0.0) -> None:
        self.most = most
        self._cold_s = cold_s  # until then it is three times slower
        self.clock = VirtualClock()
        self._random = seeds.stream(seed, "noise")
        self._noise = noise
        self._seed = seed

    def tpot_s(self, rate: float) -> float:
        return 0.010 + 0.025 * rate / self.most

    def capacity(self, p95_tpot_ms: float) -> float:
        """Where the slowest 5 % of the requests, 1.645 standard deviations of 5 % above the mean, reach a limit."""
        return self.most * (p95_tpot_ms / (1 + 1.645 * 0.05) - 10) / 25

    async def measure(self, rate: float, window: ProbeWindow, over: Callable[[LoadRecord], bool]) -> LoadRecord:
        begun_s = self.clock.span_s()
        seen = LoadRecord(begun_s=begun_s)
        future: list[tuple[Reply, list[float]]] = []
        free_s = 0.0
        level = float(self._random.normal(1.0, self._noise)) * (3.0 if begun_s < self._cold_s else 1.0)
        for time_s in arrival_times(gaps(Load(arrival="poisson"), self._seed, rate), round(rate * window.arrive_s), window.arrive_s):
            free_s = max(free_s, time_s) + 1.0 / self.most
            first_s = free_s + 0.05
            tpot_s = self.tpot_s(rate) * level * float(self._random.normal(1.0, 0.05))
            times = [begun_s + first_s + number * tpot_s for number in range(TOKENS)]
            future.append((Reply(TOKENS, 100, begun_s + time_s), times))
        while True:
            self.clock.sleep(0.1)
            now_s = self.clock.span_s()
            seen.answers = [answer for answer, _ in future if answer.sent_s <= now_s]
            for answer, times in future:
                answer.times_s = [time_s for time_s in times if time_s <= now_s]
                if len(answer.times_s) == TOKENS:
                    answer.ended_s, answer.output_tokens = times[-1], TOKENS
            if over(seen):
                seen.stopped = True
                break
            if all(not answer.is_under_way for answer, _ in future):
                break
        seen.ended_s = self.clock.span_s()
        return seen


def search(
    server: Formula, first: float, to_beat: float = 0.0, slo: tuple[str, ...] = SLO, *, known: bool = False, limit_s: float = 90.0
) -> tuple[CapacitySearch, RateProbe | None]:
    goal = TrialGoal(kind="capacity", slo=slo, search_limit_s=limit_s)
    found = CapacitySearch(goal, server.measure, answer_s=2.5, output_tokens=TOKENS, known=known, to_beat=to_beat, clock=server.clock)
    return found, asyncio.run(found.run(first))


@pytest.mark.parametrize("first", [2.0, 15.0, 28.0, 100.0])
@pytest.mark.parametrize("seed", range(2))
def test_the_capacity_is_found_in_time(first: float, seed: int) -> None:
    server = Formula(30.0, seed)
    found, best = search(server, first)
    assert best is not None
    assert best.rate == pytest.approx(server.capacity(30), rel=0.15)
    assert server.clock.span_s() < 110
    assert found.high is None or found.high > best.rate


@pytest.mark.parametrize("share", [0.5, 0.9, 1.0, 1.1, 2.0])
def test_from_a_known_capacity_the_search_takes_small_steps_and_still_leaves_a_wrong_one(share: float) -> None:
    server = Formula(30.0)
    found, best = search(server, share * server.capacity(30), known=True)
    assert best is not None
    assert best.rate == pytest.approx(server.capacity(30), rel=0.15)
    assert found.probes[1].rate == pytest.approx(found.probes[0].rate, rel=0.1)


@pytest.mark.parametrize("seed", range(3))
def test_a_server_that_is_cold_at_first_is_not_taken_for_a_slow_one(seed: int) -> None:
    server = Formula(30.0, seed, cold_s=5.0)
    found, best = search(server, server.capacity(30), known=True)
    assert not found.probes[0].held
    assert found.probes[1].rate == found.probes[0].rate
    assert best is not None
    assert best.rate == pytest.approx(server.capacity(30), rel=0.1)
    assert server.clock.span_s() < 110


def test_a_rate_to_beat_that_fails_on_a_cold_server_is_tried_again() -> None:
    server = Formula(30.0, cold_s=5.0)
    found, best = search(server, 10.0, to_beat=0.85 * server.capacity(30))
    assert [probe.held for probe in found.probes[:2]] == [False, True]
    assert best is not None


def test_a_rate_that_fails_twice_is_believed() -> None:
    found, best = search(Formula(10.0), 18.0, slo=("p95_tpot_ms<=1000",), known=True)
    failed = [probe.rate for probe in found.probes if not probe.held]
    assert max(map(failed.count, failed)) == 2
    assert best is not None
    assert best.rate < 11.5


def test_little_time_goes_into_closing_in_on_the_capacity() -> None:
    server = Formula(30.0)
    found, best = search(server, 14.0, limit_s=45.0)
    assert best is not None
    assert found.high is not None
    assert found.high / best.rate < 1.15


def test_a_long_probe_that_fails_late_costs_no_more_than_a_step() -> None:
    class Tiring(Formula):
        """Holds less for a long time than for a short one."""

        async def measure(self, rate: float, window: ProbeWindow, over: Callable[[LoadRecord], bool]) -> LoadRecord:
            self.most = 22.0 if window.drain else 30.0
            return await super().measure(rate, window, over)

    found, best = search(Tiring(30.0), 14.0, limit_s=20.0)
    assert best is not None
    assert not best.confirmed
    assert found.high is not None
    assert found.high / best.rate < 1.15


class Sessions(Formula):
    """Of which only a part is asked while answers take longer than the load counts on: the next turn of a session waits for them."""

    def __init__(self, most: float, answer_s: float) -> None:
        super().__init__(most)
        self._least_s = answer_s

    async def measure(self, rate: float, window: ProbeWindow, over: Callable[[LoadRecord], bool]) -> LoadRecord:
        sent = 1 if window.answer_s > self._least_s else 2
        record = await super().measure(rate / sent, window, over)
        record.due_s = sent * [answer.sent_s - record.begun_s for answer in record.answers]
        return record


def test_a_rate_that_could_not_be_offered_does_not_hold() -> None:
    """Answers are slower than thought: the first probe offers half of its rate, the next ones know better."""
    server = Sessions(30.0, answer_s=1.0)
    goal = TrialGoal(kind="capacity", slo=SLO)
    found = CapacitySearch(goal, server.measure, answer_s=0.5, output_tokens=TOKENS, clock=server.clock)
    best = asyncio.run(found.run(20.0))
    assert [(probe.rate, probe.held, probe.is_short) for probe in found.probes[:2]] == [(20.0, False, True), (20.0, True, False)]
    assert "could be sent" in found.probes[0].why
    assert found.probes[0].offered == pytest.approx(10.0, rel=0.1)
    assert best is not None
    assert best.rate == pytest.approx(server.capacity(30), rel=0.15)
    assert best.offered == pytest.approx(best.rate, rel=0.05)


def test_sessions_that_never_get_their_rate_have_no_such_capacity() -> None:
    found, _ = search(Sessions(30.0, answer_s=1e6), 20.0, limit_s=30.0)
    assert not any(probe.held for probe in found.probes)


def test_the_first_limit_that_breaks_counts() -> None:
    server = Formula(30.0)
    _, best = search(server, 10.0, slo=("p95_ttft_ms<=500", "p95_tpot_ms<=22"))
    assert best is not None
    assert best.rate == pytest.approx(server.capacity(22), rel=0.15)


def test_a_queue_that_grows_is_beyond_capacity_whatever_the_limits() -> None:
    _, best = search(Formula(10.0), 5.0, slo=("p95_tpot_ms<=1000",))
    assert best is not None
    assert best.rate < 11.5


def test_a_server_that_cannot_hold_the_rate_to_beat_costs_two_short_probes() -> None:
    server = Formula(10.0)
    found, best = search(server, 10.0, to_beat=24.0)
    assert best is None
    assert [probe.rate for probe in found.probes] == [24.0, 24.0]
    assert server.clock.span_s() < 14  # ended before its time


def test_a_server_that_holds_the_rate_to_beat_is_measured_to_its_end() -> None:
    _, best = search(Formula(30.0), 10.0, to_beat=15.0)
    assert best is not None
    assert best.rate > 18


def test_a_short_probe_tells_what_the_server_did_and_not_only_its_fast_requests() -> None:
    found, best = search(Formula(30.0), 20.0)
    short = next(probe for probe in found.probes if probe.held and not probe.confirmed)
    told = short.summary(())
    assert sum(answer.is_complete for answer in short.counted) < 0.8 * short.rate * short.count_s, "many were under way when it ended"
    assert told["request_throughput"] == pytest.approx(short.rate, rel=0.15)
    assert told["output_throughput"] == pytest.approx(TOKENS * short.rate, rel=0.15)
    assert told["p95_ttft_ms"] == short.metrics["p95_ttft_ms"]
    assert best is not None
    assert best.confirmed
    assert best.summary(())["completed"] == len(best.counted)


def test_no_rate_holds() -> None:
    server = Formula(30.0)
    found, best = search(server, 5.0, slo=("p95_tpot_ms<=5",))
    assert best is None
    assert not any(probe.held for probe in found.probes)
    assert server.clock.span_s() < 150


def test_a_slow_server() -> None:
    server = Formula(1.0)
    _, best = search(server, 0.5, slo=("p95_ttft_ms<=3000", "p95_tpot_ms<=30"))
    assert best is not None
    assert 0.25 < best.rate < 1.0
