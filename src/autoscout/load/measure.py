"""What a trial does with a server that is up: warm it up, load it as the plan says, and turn its answers into metrics."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from statistics import median
from typing import Any

from autoscout.common.outcome import informative_line
from autoscout.common.processes import descendants
from autoscout.core import seeds
from autoscout.core.clock import RealClock
from autoscout.core.errors import ConfigError
from autoscout.core.to_beat import ToBeat
from autoscout.core.trial import TOO_FEW
from autoscout.load import others
from autoscout.load.answers import BEYOND, Reply, breaking, latencies, statistics, summary, too_few
from autoscout.load.capacity import FAILED_SHARE, FILL_S, CapacitySearch, ProbeWindow, RateProbe
from autoscout.load.client import GIVEN_UP, Client
from autoscout.load.counters import counters_between, read_counters
from autoscout.load.early import EarlyStop
from autoscout.load.load import Loader, LoadRecord
from autoscout.load.plan import BREAKS, LATENCIES, Load, TrialPlan, split_metric
from autoscout.load.server import Server, end, log_text
from autoscout.load.steady import DueSession, Span, clients_under_way, due_sessions, under_way
from autoscout.load.text import tokenized
from autoscout.load.workload import RequestSource, Session, gaps
from autoscout.traffic.together import together

GUESS_CLIENTS = 64  # of the closed loop that guesses where to look for the capacity
GUESS_S = 6.0  # it lasts no longer
GUESS_SHARE = 0.9  # of its rate is where the search begins: most limits break before a server is saturated
WARM = 8  # requests of a warm-up, if the plan does not say
ALONE_REQUESTS, ALONE_S = 10, 30.0  # of one client, and how long it tries
USUAL_S = 20.0  # of arrivals at a rate, if the plan does not say how many requests
STAY_S = 60.0  # that sessions with pauses are looked at, if the plan does not say how many requests
HISTORY_CLIENTS = 64  # that tell a server what its sessions said before
HISTORY_SHARE = 0.5  # of the time of a load, that this takes at most
CLIENT_LOG = "client.log"  # of another program that produces the load
CLIENT_LATE_S = 0.02  # requests that are sent later than this after they are due were held up by the client
UNSETTLED = 0.15  # spread of the repeats, relative to their median, above which up to as many again are taken
CLOCK = RealClock()


class TrialFailed(Exception):  # noqa: N818 - a result
    """The trial ended early; `kind` is a status in the words of `outcome`."""

    def __init__(self, kind: str, reason: str, returncode: int = 0) -> None:
        super().__init__(reason)
        self.kind = kind
        self.returncode = returncode  # of the server, when it ended by itself


class LoadMeasurement:
    """One server, one plan; `prepare` comes first."""

    def __init__(self, plan: TrialPlan, server: Server) -> None:
        self._plan = plan
        self._server = server
        self._client = client_of(plan, server, plan.load.endpoint, plan.load.request_limit_s)
        self._deadline_s = CLOCK.span_s() + plan.limit_s
        self._looked_s = 0.0
        self._answer_s = FILL_S[0]
        self._to_beat = ToBeat.here()

    def close(self) -> None:
        self._client.close()

    async def prepare(self) -> None:
        """Read what the requests are made of.

        Raises:
            TrialFailed: the workload cannot be made.
        """
        plan, load = self._plan, self._plan.load
        name, words = load.text_name, load.endpoint == "chat"
        try:
            text = await tokenized(self._client, plan.tokenize_path, name, words=words) if name else None
            windows = traffic.judged if load.workload == "traffic" and (traffic := load.description) is not None else (None,)
            self._sources = [RequestSource(load, plan.vocab_size, plan.seed, text, window) for window in windows]
            self._source = self._sources[0]
        except ConfigError as error:
            raise TrialFailed("crashed", str(error)) from error

    async def warm_up(self) -> None:
        """Requests that do not count, so that whatever is made on first use has been made."""
        load = self._plan.load
        requests = WARM if load.warmup < 0 else load.warmup
        if requests:
            sessions: Iterator[Session] = islice(hurried(self._source.sessions("warmup")), requests)
            if load.warmup_tokens and self._plan.goal.kind != "capacity":  # which learns from the warm-up how long answers take
                sessions = (_shortened(session, load.warmup_tokens) for session in sessions)
            record = await Loader(self._client, self._watch()).closed(sessions, min(requests, load.concurrency or requests))
            self._fail_if_wrong(record)
            self._answer_s = _fill_s(record)

    async def measure(self) -> dict[str, Any]:
        """Metrics, and notes on how they came about; `bounds` and `reason` too where the trial was stopped because it cannot win any more.

        Raises:
            TrialFailed: some step went wrong in a way that can be told apart.
        """
        before = await read_counters(self._client, self._plan.metrics_path)
        results = []
        if len(self._sources) > 1:
            self._to_beat = None  # which is of all windows together
        for source in self._sources:
            self._source = source
            results.append(await (self._capacity() if self._plan.goal.kind == "capacity" else self._fixed()))
        result = results[0] if len(results) == 1 else self._together(results)
        metrics = counters_between(before, await read_counters(self._client, self._plan.metrics_path))
        if metrics.pop("corrupted", 0.0):
            raise TrialFailed("wrong_output", "the engine says that its own numbers were not numbers")
        result["metrics"] |= metrics
        return result

    def _together(self, results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The results of all windows as one."""
        windows = [source.window for source in self._sources if source.window is not None]
        notes = [result["notes"] for result in results]
        said = [f"{window.name}: {sentence}" for window, note in zip(windows, notes, strict=True) for sentence in note["said"]]
        broken = "; ".join(f"{window.name}: {note[BREAKS]}" for window, note in zip(windows, notes, strict=True) if note.get(BREAKS))
        more = {window.name: note for window, note in zip(windows, notes, strict=True)}
        return {
            "metrics": together(windows, [result["metrics"] for result in results]),
            "notes": {"said": said, TOO_FEW: sum(note[TOO_FEW] for note in notes), BREAKS: broken, "windows": more},
        }

    async def _fixed(self) -> dict[str, Any]:
        """A load of a given size: latency at a concurrency or rate, goodput at a rate, or everything at once."""
        load, goal = self._plan.load, self._plan.goal
        if load.client != "builtin":
            return await self._by_another()
        early = EarlyStop(self._to_beat, goal.limits)
        begun_s = CLOCK.span_s()
        repeats: list[dict[str, float]] = []
        late_s: list[float] = []
        broken = ""

        def stop(record: LoadRecord) -> bool:
            return early.is_lost(record, repeats)

        while not early.is_lost_after(repeats, load.repeats) and is_repeat_due(repeats, load, CLOCK.span_s() - begun_s):
            record = await self._repeat(len(repeats), stop)
            self._fail_if_wrong(record)
            late_s += record.late_s
            replies = [reply for reply in record.answers if reply.is_complete] if early.why else record.answers
            broken = breaking(replies, goal.limits) or broken
            repeats += [summary(replies, record.duration_s, goal.limits)] if replies else []
            if replies and not early.why:
                repeats[-1] |= self._offered(record, repeats[-1])
            if early.why:
                break
        metrics = {name: median(repeat[name] for repeat in repeats) for name in (repeats[0] if repeats else ())}
        samples = {name: [repeat[name] for repeat in repeats] for name in metrics} if load.repeats > 1 else {}
        result = {"metrics": metrics, "samples": samples}
        if early.why:
            return {**result, "notes": {}, "bounds": early.bounds, "reason": early.why}
        totals = {name: sum(repeat[name] for repeat in repeats) for name in ("completed", "output_tokens")}
        return {**result, "notes": {**self._notes(late_s, totals), BREAKS: broken}}

    def _offered(self, record: LoadRecord, metrics: Mapping[str, float]) -> dict[str, float]:
        """What was asked: requests a second, where they came at a rate, and how many sessions were under way, where there are any."""
        shape, clients = self._source.shape, self._plan.load.concurrency
        rate = {"offered_rps": len(record.answers) / record.arrive_s} if record.arrive_s else {}
        if shape.turns == 1 or not (rate or clients):
            return rate
        under_way = shape.under_way(rate["offered_rps"], metrics["mean_e2el_ms"] / 1000) if rate else float(clients)
        return {**rate, "sessions_under_way": under_way}

    async def _repeat(self, number: int, stop: Callable[[LoadRecord], bool]) -> LoadRecord:
        """The load once."""
        load, goal = self._plan.load, self._plan.goal
        name = f"measure {number}" if number else "measure"
        loader, sessions = Loader(self._client, self._watch(stop)), self._source.sessions(name)
        if goal.kind == "offline":
            requests = load.requests or 256
            return await loader.closed(self._some(hurried(sessions), requests), load.concurrency or requests, load.enough_s)
        if load.workload == "trace" and load.arrival == "closed" and not load.concurrency and not load.request_rate:
            return await loader.arriving(sessions, [(time_s,) for time_s in self._source.times_s()[: load.requests or None]])
        if load.arrival == "closed" and not load.request_rate:
            clients = load.concurrency or 1
            if self._source.shape.pauses:
                return await self._staying(name, clients, stop)
            requests = load.requests or max(4 * clients, self._enough())
            return await loader.closed(self._some(sessions, requests), clients, load.enough_s)
        requests = load.requests or int(max(load.request_rate * USUAL_S, self._enough()))
        return await self._arriving(
            name, load.request_rate, Span(0.0, requests / load.request_rate), self._answer_s, stop, load.concurrency
        )

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
                raise TrialFailed("crashed", f"the client {load.client} could not be started: {error}") from error
            try:
                while process.returncode is None:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(process.wait(), 0.2)
                    self._server.check()
                    if CLOCK.span_s() > self._deadline_s:
                        raise TrialFailed("timeout", f"the load had not ended after {self._plan.limit_s:g} s")
            finally:
                end([pid for pid in (process.pid, *descendants(process.pid)) if process.returncode is None], self._plan.grace_s)
        try:
            metrics = others.read(self._plan, folder)
        except others.Unreadable as error:
            why = informative_line(log_text(folder / CLIENT_LOG))
            raise TrialFailed("crashed", f"{error}; it ended with exit code {process.returncode}: {why}") from error
        if metrics["completed"] < 1 or metrics["failed"] > FAILED_SHARE * requests:
            raise TrialFailed("crashed", f"{metrics['failed']:.0f} of {requests} requests of {load.client} failed")
        return {"metrics": metrics, "notes": self._notes([], metrics)}

    async def _capacity(self) -> dict[str, Any]:
        goal = self._plan.goal
        target = self._to_beat if self._to_beat is not None and self._to_beat.metric == "capacity_rps" else None
        to_beat, known = (target.value or 0.0, target.known or 0.0) if target is not None else (0.0, 0.0)
        first = to_beat or known or goal.first_rate or await self._guess()
        mean = self._plan.load.output_tokens if self._plan.load.workload in ("random", "multi_turn") else self._mean_output()
        late_s: list[float] = []
        last: list[Reply] = []
        number = iter(range(10**6))

        async def probe(rate: float, window: ProbeWindow, over: Callable[[LoadRecord], bool]) -> LoadRecord:
            span = Span(window.ramp_s, window.count_s)
            record = await self._arriving(f"probe {next(number)}", rate, span, window.answer_s, over)
            late_s.extend(record.late_s)
            last[:] = record.answers
            self._fail_if_wrong(record, tolerant=True)
            return record

        search = CapacitySearch(goal, probe, answer_s=self._answer_s, output_tokens=mean, known=known > 0, to_beat=to_beat)
        best = await search.run(first)
        notes = {"probes": [one.to_json() for one in search.probes], "first_rate": first}
        if best is None and to_beat:
            answered = [answer for answer in last if answer.is_complete]
            metrics = {"capacity_high_rps": to_beat, "completed": float(len(answered)), **(latencies(answered) if answered else {})}
            why = f"cannot hold {to_beat:.4g} requests/s, which is to beat: {search.probes[-1].why}"
            return {"metrics": metrics, "notes": notes, "bounds": {"capacity_rps": to_beat}, "reason": why}
        metrics = await self._alone() if best is None else self._of_probe(best, search.high)
        counted = [] if best is None else best.counted
        return {"metrics": metrics, "notes": {**notes, **self._notes(late_s, metrics), BREAKS: breaking(counted, goal.limits)}}

    async def _alone(self) -> dict[str, float]:
        """No rate keeps the SLO: what one client sees, whose own rate is the capacity if that keeps it, else 0."""
        deadline_s = CLOCK.span_s() + ALONE_S

        def stop(record: LoadRecord) -> bool:
            return CLOCK.span_s() > deadline_s and any(reply.is_complete for reply in record.answers)

        loader = Loader(self._client, self._watch(stop))
        record = await loader.closed(islice(hurried(self._source.sessions("alone")), ALONE_REQUESTS), 1)
        self._fail_if_wrong(record, tolerant=True)
        metrics = summary([one for one in record.answers if one.error != GIVEN_UP], record.duration_s, self._plan.goal.limits)
        is_held = all(limit.allows(metrics[limit.metric]) for limit in self._plan.goal.limits if limit.metric in metrics)
        rate = metrics["request_throughput"] if is_held else 0.0
        return {"capacity_rps": rate, "capacity_confirmed": 1.0, **self._sessions(rate, metrics), **metrics}

    def _sessions(self, rate: float, metrics: Mapping[str, float]) -> dict[str, float]:
        """How many sessions are under way at a rate, where there are any."""
        shape = self._source.shape
        return {"capacity_sessions": shape.under_way(rate, metrics["mean_e2el_ms"] / 1000)} if shape.turns > 1 else {}

    def _of_probe(self, best: RateProbe, high: float | None) -> dict[str, float]:
        metrics = best.summary(self._plan.goal.limits)
        interval = {"capacity_low_rps": best.rate, "capacity_high_rps": high if high is not None else best.rate}
        interval |= {"offered_rps": best.offered, **self._sessions(best.rate, metrics)}
        return {"capacity_rps": best.rate, **interval, "capacity_confirmed": float(best.confirmed), **metrics}

    async def _guess(self) -> float:
        """A rate to begin with, by a short closed loop."""
        deadline_s = CLOCK.span_s() + GUESS_S
        loader = Loader(self._client, self._watch(lambda _: CLOCK.span_s() > deadline_s))
        sessions = islice(hurried(self._source.sessions("guess")), 3 * GUESS_CLIENTS)
        record = await loader.closed(sessions, GUESS_CLIENTS)
        self._fail_if_wrong(record, tolerant=True)
        half_s = (record.begun_s + record.ended_s) / 2  # in the first half most requests still wait for their first token
        tokens = sum(time_s > half_s for answer in record.answers for time_s in answer.times_s)
        mean_tokens = sum(answer.requested_tokens for answer in record.answers) / max(1, len(record.answers))
        self._answer_s = _fill_s(record)
        return max(tokens, 1) / max(mean_tokens, 1.0) / max(record.ended_s - half_s, 0.1) * GUESS_SHARE

    def _mean_output(self) -> float:
        lengths = [request.output_tokens for session in islice(self._source.sessions("mean"), 200) for request in session]
        return sum(lengths) / len(lengths)

    async def _arriving(
        self, name: str, rate: float, span: Span, answer_s: float, over: Callable[[LoadRecord], bool], most: int = 0
    ) -> LoadRecord:
        """Requests at a rate; sessions of several turns as if they had been coming for ever."""
        source, plan = self._source, self._plan
        gaps_s = gaps(plan.load, plan.seed, rate / source.shape.requests, source.times_s(), source.window)
        due = due_sessions(source.shape, rate, gaps_s, seeds.stream(plan.seed, "sessions"), answer_s, span)
        loader, times_s = Loader(self._client, self._watch(over)), [one.due_s for one in due]
        if source.shape.turns == 1:
            record = await loader.arriving(source.sessions(name), times_s, most)
        else:
            parts = await self._under_way(source.sessions(name), due, span.whole_s)
            record = await loader.arriving(parts, times_s, most, span.whole_s)
        record.arrive_s = span.whole_s
        return record

    async def _staying(self, name: str, clients: int, over: Callable[[LoadRecord], bool]) -> LoadRecord:
        """As many sessions that pause between their turns, for as long as their requests take, each followed by another."""
        source, load = self._source, self._plan.load
        due = clients_under_way(source.shape, clients, seeds.stream(self._plan.seed, "sessions"), self._answer_s)
        turn_s = self._answer_s + source.shape.pause_s * (source.shape.turns - 1) / source.shape.turns
        whole_s = (load.requests or self._enough()) * turn_s / clients / source.shape.branches
        whole_s = whole_s if load.requests else min(STAY_S, whole_s)
        whole_s = max(whole_s, min(one.due_s[0] for one in due) + self._answer_s)  # or nothing at all might be asked
        sessions = source.sessions(name)
        parts = await self._under_way(sessions, due, whole_s)
        return await Loader(self._client, self._watch(over)).staying(chain(parts, sessions), clients, whole_s)

    async def _under_way(self, sessions: Iterator[Session], due: Sequence[DueSession], load_s: float) -> list[Session]:
        """The sessions of a load from where they are, after the server has seen what they said before, as far as the time suffices."""
        parts, before = under_way(sessions, due, self._source.shape.branches)
        if before and self._plan.request.get("cache_prompt") is not False:
            deadline_s = CLOCK.span_s() + HISTORY_SHARE * load_s
            record = await Loader(self._client, self._watch(lambda _: CLOCK.span_s() > deadline_s)).closed(before, HISTORY_CLIENTS)
            self._fail_if_wrong(record, tolerant=True)
        return parts

    def _some(self, sessions: Iterator[Session], requests: int) -> list[Session]:
        return list(islice(sessions, max(1, requests // self._source.shape.requests)))

    def _enough(self) -> int:
        """Requests for the percentiles of the limits."""
        parts = [split_metric(limit.metric) for limit in self._plan.goal.limits]
        shares = [float(name[1:]) / 100 for name, latency, _ in parts if name.startswith("p") and latency in LATENCIES[:2]]
        return int(BEYOND / (1 - max(shares, default=0.95)))

    def _watch(self, over: Callable[[LoadRecord], bool] | None = None) -> Callable[[LoadRecord], bool]:
        """Ends a load when the server has ended or hangs, or when `over` says so."""

        def stop(record: LoadRecord) -> bool:
            self._server.check()
            now_s = CLOCK.span_s()
            if now_s - self._looked_s > 1.0:
                self._looked_s = now_s
                self._fail_if_stalled(record, now_s)
            return over is not None and over(record)

        return stop

    def _fail_if_stalled(self, record: LoadRecord, now_s: float) -> None:
        waiting = [answer for answer in record.answers if answer.is_under_way]
        newest_s = max((answer.times_s[-1] if answer.times_s else 0.0 for answer in record.answers), default=0.0)
        begun_s = min((answer.sent_s for answer in waiting), default=now_s)
        if waiting and now_s - max(newest_s, begun_s) > self._plan.stall_s:
            raise TrialFailed("timeout", f"the server hangs: no token for {self._plan.stall_s:g} s with {len(waiting)} requests under way")
        if now_s > self._deadline_s:
            raise TrialFailed("timeout", f"the load had not ended after {self._plan.limit_s:g} s")

    def _fail_if_wrong(self, record: LoadRecord, *, tolerant: bool = False) -> None:
        """Raise `TrialFailed` for answers that are wrong or, unless `tolerant`, too many that failed."""
        failed = [answer for answer in record.answers if answer.error and answer.error != GIVEN_UP]
        wrong = [answer.error for answer in failed if answer.error.startswith(("asked for", "no tokens"))]
        complete = [answer for answer in record.answers if answer.is_complete]
        if self._plan.check.readable:
            wrong += [f"{answer.tokens} tokens, but no readable text" for answer in complete if not answer.readable]
        if self._plan.check.uncached:
            rule = "{} of {} prompt tokens came from a cache"
            wrong += [rule.format(answer.cached_tokens, answer.input_tokens) for answer in complete if answer.cached_tokens]
        if wrong:
            raise TrialFailed("wrong_output", wrong[0])
        if (failed and not complete) or (not tolerant and len(failed) > FAILED_SHARE * len(record.answers)):
            raise TrialFailed("crashed", f"{len(failed)} of {len(record.answers)} requests failed: {failed[0].error}")

    def _notes(self, late_s: list[float], metrics: Mapping[str, float]) -> dict[str, Any]:
        few = too_few(self._plan.goal.limits, self._plan.goal.metric, metrics)
        sentences = list(few)
        if late_s and (late := statistics(late_s, ("p99",))["p99"]) > CLIENT_LATE_S:
            sentences.append(f"the client was late: 1 % of the requests were sent {1000 * late:.0f} ms or more after they were due")
        if self._source.shape.pauses and self._plan.goal.kind == "offline":
            sentences.append(
                "all was sent at once, without the pauses of sessions: give a concurrency, a request_rate or limits to keep them"
            )
        return {"said": sentences, TOO_FEW: len(few)}


def client_of(plan: TrialPlan, server: Server, endpoint: str, limit_s: float) -> Client:
    """A client of the server that a plan starts."""
    return Client(server.port, plan.model, endpoint=endpoint, limit_s=limit_s, fields=plan.request, keep_alive=plan.keep_alive)


def is_repeat_due(repeats: Sequence[Mapping[str, float]], load: Load, spent_s: float) -> bool:
    """Whether another repeat is worth its time."""
    if not repeats or 0 < load.enough_s < spent_s:
        return not repeats
    if len(repeats) < load.repeats:
        return True
    values = [repeat["output_throughput"] for repeat in repeats]
    return 1 < len(repeats) < 2 * load.repeats and max(values) - min(values) > UNSETTLED * median(values)


def hurried(sessions: Iterator[Session]) -> Iterator[Session]:
    """Without the pauses of sessions: where all is sent at once, and where only the server is looked at, nobody waits for people."""
    return ([replace(request, wait_s=0.0) for request in session] for session in sessions)


def _shortened(session: Session, output_tokens: int) -> Session:
    return [replace(request, output_tokens=min(request.output_tokens, output_tokens)) for request in session]


def _fill_s(record: LoadRecord) -> float:
    times_s = [answer.e2el_s for answer in record.answers if answer.is_complete]
    return min(FILL_S[1], max(FILL_S[0], median(times_s))) if times_s else FILL_S[1]
