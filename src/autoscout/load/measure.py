"""What a trial does with a server that is up: warm it up, load it as the plan says, and turn what was seen into metrics."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from autoscout.common.outcome import informative_line
from autoscout.common.processes import descendants
from autoscout.core.clock import RealClock
from autoscout.core.errors import ConfigError
from autoscout.core.to_beat import ToBeat
from autoscout.core.trial import TOO_FEW
from autoscout.load import counters, others
from autoscout.load.answers import BEYOND, Answer, latencies, statistics, summary, too_few
from autoscout.load.capacity import FAILED_SHARE, FILL_S, CapacitySearch, Probe, Window
from autoscout.load.client import GIVEN_UP, Client
from autoscout.load.early import EarlyStop
from autoscout.load.load import Loader, Seen, Session, arrival_times
from autoscout.load.plan import LATENCIES, Plan
from autoscout.load.server import Server, end, log_text
from autoscout.load.workload import Workload, gaps

GUESS_CLIENTS = 64  # of the closed loop that guesses where to look for the capacity
GUESS_S = 6.0  # it lasts no longer
GUESS_SHARE = 0.9  # of its rate is where the search begins: most limits break before a server is saturated
WARM = 8  # requests of a warm-up, if the plan does not say
ALONE_REQUESTS, ALONE_S = 10, 30.0  # of one client, and how long it tries
USUAL_S = 20.0  # of arrivals at a rate, if the plan does not say how many requests
CLIENT_LOG = "client.log"  # of another program that produces the load
CLIENT_LATE_S = 0.02  # requests that are sent later than this after they are due were held up by the client
CLOCK = RealClock()


class Failed(Exception):  # noqa: N818 - a result
    """The trial ended early; `kind` is a status in the words of `outcome`."""

    def __init__(self, kind: str, reason: str, returncode: int = 0) -> None:
        super().__init__(reason)
        self.kind = kind
        self.returncode = returncode  # of the server, when it ended by itself


class Measuring:
    """One server, one plan.

    Raises:
        Failed: the workload cannot be made.
    """

    def __init__(self, plan: Plan, server: Server) -> None:
        self._plan = plan
        self._server = server
        self._client = Client(server.port, plan.model, endpoint=plan.load.endpoint, limit_s=plan.load.request_limit_s)
        self._deadline_s = CLOCK.span_s() + plan.limit_s
        self._looked_s = 0.0
        self._answer_s = FILL_S[0]
        self._to_beat = ToBeat.here()
        try:
            self._workload = Workload(plan.load, plan.vocab_size, plan.seed)
        except ConfigError as error:
            raise Failed("crashed", str(error)) from error

    def close(self) -> None:
        self._client.close()

    async def warm_up(self) -> None:
        """Requests that do not count, so that whatever is made on first use has been made."""
        wanted = self._plan.load.warmup
        requests = WARM if wanted < 0 else wanted
        if requests:
            sessions = islice(self._workload.sessions("warmup"), requests)
            seen = await Loader(self._client, self._watch()).closed(sessions, min(requests, self._plan.load.concurrency or requests))
            self._fail_if_wrong(seen)
            self._answer_s = _fill_s(seen)

    async def measure(self) -> dict[str, Any]:
        """Metrics, and notes on how they came about; `bounds` and `reason` too where the trial was stopped because it cannot win any more.

        Raises:
            Failed: some step went wrong in a way that can be told apart.
        """
        before = await counters.read(self._client, self._plan.metrics_path)
        found = await (self._capacity() if self._plan.goal.kind == "capacity" else self._fixed())
        told = counters.during(before, await counters.read(self._client, self._plan.metrics_path))
        if told.pop("corrupted", 0.0):
            raise Failed("wrong_output", "the engine says that its own numbers were not numbers")
        found["metrics"] |= told
        return found

    async def _fixed(self) -> dict[str, Any]:
        """A load of a given size: latency at a concurrency or rate, goodput at a rate, or everything at once."""
        load, goal = self._plan.load, self._plan.goal
        if load.client != "builtin":
            return await self._by_another()
        early = EarlyStop(self._to_beat, goal.limits)
        loader, sessions = Loader(self._client, self._watch(early.lost)), self._workload.sessions("measure")
        if goal.kind == "offline":
            requests = load.requests or 256
            seen = await loader.closed(self._some(sessions, requests), load.concurrency or requests)
        elif load.workload == "trace" and load.arrival == "closed" and not load.concurrency and not load.request_rate:
            times_s = self._workload.times_s()[: load.requests or None]
            seen = await loader.arriving(sessions, times_s)
        elif load.arrival == "closed" and not load.request_rate:
            clients = load.concurrency or 1
            seen = await loader.closed(self._some(sessions, load.requests or max(4 * clients, self._enough())), clients)
        else:
            requests = load.requests or int(max(load.request_rate * USUAL_S, self._enough()))
            times_s = self._arrivals(load.request_rate, requests / load.request_rate)
            seen = await loader.arriving(sessions, times_s, load.concurrency)
        self._fail_if_wrong(seen)
        if early.why:
            answered = [answer for answer in seen.answers if answer.good]
            metrics = summary(answered, seen.duration_s, goal.limits) if answered else {}
            return {"metrics": metrics, "notes": {}, "bounds": early.bounds, "reason": early.why}
        metrics = summary(seen.answers, seen.duration_s, goal.limits)
        return {"metrics": metrics, "notes": self._notes(seen.late_s, metrics)}

    async def _by_another(self) -> dict[str, Any]:
        """The load of another program."""
        load, folder = self._plan.load, Path.cwd()
        clients = load.concurrency or 1
        requests = load.requests or int(max(load.request_rate * USUAL_S if load.request_rate else 4 * clients, self._enough()))
        argv = others.command(self._plan, self._server.port, requests)
        with (folder / CLIENT_LOG).open("wb") as log:
            try:
                process = await asyncio.create_subprocess_exec(*argv, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log)
            except OSError as error:
                raise Failed("crashed", f"the client {load.client} could not be started: {error}") from error
            try:
                while process.returncode is None:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(process.wait(), 0.2)
                    self._server.check()
                    if CLOCK.span_s() > self._deadline_s:
                        raise Failed("timeout", f"the load had not ended after {self._plan.limit_s:g} s")
            finally:
                end([pid for pid in (process.pid, *descendants(process.pid)) if process.returncode is None], self._plan.grace_s)
        try:
            metrics = others.read(self._plan, folder)
        except others.Unreadable as error:
            said = informative_line(log_text(folder / CLIENT_LOG))
            raise Failed("crashed", f"{error}; it ended with exit code {process.returncode}: {said}") from error
        if metrics["completed"] < 1 or metrics["failed"] > FAILED_SHARE * requests:
            raise Failed("crashed", f"{metrics['failed']:.0f} of {requests} requests of {load.client} failed")
        return {"metrics": metrics, "notes": self._notes([], metrics)}

    async def _capacity(self) -> dict[str, Any]:
        goal = self._plan.goal
        told = self._to_beat if self._to_beat is not None and self._to_beat.metric == "capacity_rps" else None
        to_beat, known = (told.value or 0.0, told.known or 0.0) if told is not None else (0.0, 0.0)
        first = to_beat or known or goal.first_rate or await self._guess()
        mean = (self._plan.load.output_tokens if self._plan.load.workload in ("random", "multi_turn") else 0) or self._mean_output()
        late_s: list[float] = []
        last: list[Answer] = []
        number = iter(range(10**6))

        async def probe(rate: float, window: Window, over: Callable[[Seen], bool]) -> Seen:
            times_s = self._arrivals(rate, window.arrive_s)
            loader = Loader(self._client, self._watch(over))
            seen = await loader.arriving(self._workload.sessions(f"probe {next(number)}"), times_s)
            late_s.extend(seen.late_s)
            last[:] = seen.answers
            self._fail_if_wrong(seen, tolerant=True)
            return seen

        search = CapacitySearch(goal, probe, answer_s=self._answer_s, output_tokens=mean, known=known > 0, to_beat=to_beat)
        best = await search.run(first)
        notes = {"probes": [one.to_json() for one in search.probes], "first_rate": first}
        if best is None and to_beat:
            answered = [answer for answer in last if answer.good]
            metrics = {"capacity_high_rps": to_beat, "completed": float(len(answered)), **(latencies(answered) if answered else {})}
            why = f"cannot hold {to_beat:.4g} requests/s, which is to beat: {search.probes[-1].why}"
            return {"metrics": metrics, "notes": notes, "bounds": {"capacity_rps": to_beat}, "reason": why}
        metrics = await self._alone() if best is None else self._of_probe(best, search.high)
        return {"metrics": metrics, "notes": {**notes, **self._notes(late_s, metrics)}}

    async def _alone(self) -> dict[str, float]:
        """No rate keeps the SLO: what one client sees, whose own rate is the capacity if that keeps it, else 0."""
        deadline_s = CLOCK.span_s() + ALONE_S
        loader = Loader(self._client, self._watch(lambda seen: CLOCK.span_s() > deadline_s and any(one.good for one in seen.answers)))
        seen = await loader.closed(islice(self._workload.sessions("alone"), ALONE_REQUESTS), 1)
        self._fail_if_wrong(seen, tolerant=True)
        metrics = summary([one for one in seen.answers if one.error != GIVEN_UP], seen.duration_s, self._plan.goal.limits)
        held = all(limit.allows(metrics[limit.metric]) for limit in self._plan.goal.limits if limit.metric in metrics)
        return {"capacity_rps": metrics["request_throughput"] if held else 0.0, "capacity_confirmed": 1.0, **metrics}

    def _of_probe(self, best: Probe, high: float | None) -> dict[str, float]:
        metrics = best.summary(self._plan.goal.limits)
        interval = {"capacity_low_rps": best.rate, "capacity_high_rps": high if high is not None else best.rate}
        return {"capacity_rps": best.rate, **interval, "capacity_confirmed": float(best.confirmed), **metrics}

    async def _guess(self) -> float:
        """A rate to begin with, by a short closed loop."""
        deadline_s = CLOCK.span_s() + GUESS_S
        loader = Loader(self._client, self._watch(lambda _: CLOCK.span_s() > deadline_s))
        sessions = islice(self._workload.sessions("guess"), 3 * GUESS_CLIENTS)
        seen = await loader.closed(sessions, GUESS_CLIENTS)
        self._fail_if_wrong(seen, tolerant=True)
        half_s = (seen.begun_s + seen.ended_s) / 2  # in the first half most requests still wait for their first token
        tokens = sum(time_s > half_s for answer in seen.answers for time_s in answer.times_s)
        wanted = sum(answer.wanted for answer in seen.answers) / max(1, len(seen.answers))
        self._answer_s = _fill_s(seen)
        return max(tokens, 1) / max(wanted, 1.0) / max(seen.ended_s - half_s, 0.1) * GUESS_SHARE

    def _mean_output(self) -> float:
        some = [request.output_tokens for session in islice(self._workload.sessions("mean"), 200) for request in session]
        return sum(some) / len(some)

    def _arrivals(self, rate: float, duration_s: float) -> list[float]:
        """When sessions begin, whose requests together come at `rate`."""
        sessions = rate / self._workload.turns
        drawn = gaps(self._plan.load, self._plan.seed, sessions, self._workload.times_s())
        return arrival_times(drawn, max(1, round(sessions * duration_s)), duration_s)

    def _some(self, sessions: Iterator[Session], requests: int) -> list[Session]:
        return list(islice(sessions, max(1, requests // self._workload.turns)))

    def _enough(self) -> int:
        """Requests for the percentiles of the limits."""
        parts = [limit.metric.partition("_") for limit in self._plan.goal.limits]
        shares = [float(name[1:]) / 100 for name, _, latency in parts if name.startswith("p") and latency in LATENCIES[:2]]
        return int(BEYOND / (1 - max(shares, default=0.95)))

    def _watch(self, over: Callable[[Seen], bool] | None = None) -> Callable[[Seen], bool]:
        """Ends a load when the server has ended or hangs, or when `over` says so."""

        def stop(seen: Seen) -> bool:
            self._server.check()
            now_s = CLOCK.span_s()
            if now_s - self._looked_s > 1.0:
                self._looked_s = now_s
                self._fail_if_stalled(seen, now_s)
            return over is not None and over(seen)

        return stop

    def _fail_if_stalled(self, seen: Seen, now_s: float) -> None:
        waiting = [answer for answer in seen.answers if answer.under_way]
        newest_s = max((answer.times_s[-1] if answer.times_s else 0.0 for answer in seen.answers), default=0.0)
        begun_s = min((answer.sent_s for answer in waiting), default=now_s)
        if waiting and now_s - max(newest_s, begun_s) > self._plan.stall_s:
            raise Failed("timeout", f"the server hangs: no token for {self._plan.stall_s:g} s with {len(waiting)} requests under way")
        if now_s > self._deadline_s:
            raise Failed("timeout", f"the load had not ended after {self._plan.limit_s:g} s")

    def _fail_if_wrong(self, seen: Seen, *, tolerant: bool = False) -> None:
        """Raise `Failed` for answers that are wrong or, unless `tolerant`, too many that failed."""
        failed = [answer for answer in seen.answers if answer.error and answer.error != GIVEN_UP]
        wrong = [answer for answer in failed if answer.error.startswith(("asked for", "no tokens"))]
        if wrong:
            raise Failed("wrong_output", wrong[0].error)
        nothing = failed and not any(answer.good for answer in seen.answers)
        if nothing or (not tolerant and len(failed) > FAILED_SHARE * len(seen.answers)):
            raise Failed("crashed", f"{len(failed)} of {len(seen.answers)} requests failed: {failed[0].error}")

    def _notes(self, late_s: list[float], metrics: dict[str, float]) -> dict[str, Any]:
        few = too_few(self._plan.goal.limits, self._plan.goal.metric, metrics)
        said = list(few)
        if late_s and (late := statistics(late_s, ("p99",))["p99"]) > CLIENT_LATE_S:
            said.append(f"the client was late: 1 % of the requests were sent {1000 * late:.0f} ms or more after they were due")
        return {"said": said, TOO_FEW: len(few)}


def _fill_s(seen: Seen) -> float:
    times_s = [answer.e2el_s for answer in seen.answers if answer.good]
    return min(FILL_S[1], max(FILL_S[0], median(times_s))) if times_s else FILL_S[1]
