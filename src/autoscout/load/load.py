"""Producing a load: a closed loop or arrivals by a clock, and a record of it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, islice
from typing import Any, NamedTuple

from autoscout.core.clock import RealClock
from autoscout.load.answers import Reply
from autoscout.load.client import Client
from autoscout.load.workload import PlannedRequest, Session

AHEAD = 2000  # requests whose bytes are made before a load begins; the others while it waits for their time
LOOK_S = 0.1  # between two looks whether the load should end early
CLOCK = RealClock()

Stop = Callable[["LoadRecord"], bool]
"""Looked at several times a second; true ends the load at once and gives up what is under way."""


@dataclass
class LoadRecord:
    """Every request of a load that was sent, in order."""

    answers: list[Reply] = field(default_factory=list)
    begun_s: float = 0.0
    ended_s: float = 0.0
    late_s: list[float] = field(default_factory=list)  # how much later than due requests were sent: the client's own fault
    stopped: bool = False  # ended early
    closed: bool = False  # a closed loop
    planned_requests: int = 0  # of the whole load
    planned_tokens: int = 0  # of all its answers
    planned_inputs: int = 0  # tokens of all its prompts
    arrive_s: float = 0.0  # in which requests at a rate were to come; 0 where no rate is given
    until_s: float = 0.0  # how long requests came; 0 for a load that ends with the last of a number of them
    due_s: list[float] = field(default_factory=list)  # when they were due in that time, from the beginning

    @property
    def duration_s(self) -> float:
        """From the beginning to the last token, or to the end of the time in which requests came."""
        last_s = max((answer.times_s[-1] for answer in self.answers if answer.times_s), default=self.ended_s) - self.begun_s
        return max(last_s, 0.0 if self.stopped else self.until_s)

    def sent(self, begin_s: float, end_s: float) -> int:
        """Requests that were sent between two moments of the load."""
        return sum(begin_s <= answer.sent_s - self.begun_s < end_s for answer in self.answers)

    def due(self, begin_s: float, end_s: float) -> int:
        """Those that were due then; 0 where nobody said."""
        return sum(begin_s <= time_s < end_s for time_s in self.due_s)


class _Turn(NamedTuple):
    """Requests of a session that are sent together, and the pause before them."""

    wait_s: float
    requests: list[tuple[bytes, Reply]]


class Loader:
    """Sends sessions of requests.

    Args:
        client: Who sends them.
        stop: See `Stop`.
    """

    def __init__(self, client: Client, stop: Stop | None = None) -> None:
        self._client = client
        self._stop = stop

    async def closed(self, sessions: Iterable[Session], clients: int, enough_s: float = 0.0) -> LoadRecord:
        """All sessions, `clients` at a time: each client sends its next request when the last is answered, and it has paused.

        Args:
            sessions: Of the whole load.
            clients: How many there are.
            enough_s: A client begins no further session after this long, but each its first; 0: no bound.
        """
        all_sessions = list(sessions)
        record = _new_record([request for session in all_sessions for request in session], closed=True)
        waiting = iter(all_sessions)

        async def one_client() -> None:
            for session in waiting:
                await self._session(self._encoded(session), record)
                if 0 < enough_s < CLOCK.span_s() - record.begun_s:
                    return

        return await self._watched(record, [one_client() for _ in range(clients)])

    async def staying(self, sessions: Iterable[Session], clients: int, until_s: float) -> LoadRecord:
        """As `closed`, with sessions without end: nothing is sent after `until_s`."""
        record, waiting = _new_record([], closed=True), iter(sessions)
        ahead = [self._encoded(session) for session in islice(waiting, clients)]
        record.begun_s, record.until_s = CLOCK.span_s(), until_s

        async def one_client(session: list[_Turn]) -> None:
            while await self._session(session, record, until_s=until_s):
                session = self._encoded(next(waiting))

        return await self._watched(record, [one_client(session) for session in ahead])

    async def arriving(
        self, sessions: Iterable[Session], due_s: Iterable[Sequence[float]], most: int = 0, until_s: float = math.inf
    ) -> LoadRecord:
        """Sessions whose turns come at these times, counted from now, whether or not other sessions are answered.

        A turn waits for the answers of the one before it in its session, if they are late.

        Args:
            sessions: As many as there are times.
            due_s: When each turn of each is due, in order of the first.
            most: Sessions under way at once; 0 for no bound. One that is due waits until another has ended.
            until_s: Nothing is sent later.
        """
        due, waiting = list(due_s), iter(sessions)
        first = list(islice(waiting, min(AHEAD, len(due))))
        ahead = [self._encoded(session) for session in first]
        rest = (self._encoded(session) for session in waiting)
        is_whole = len(ahead) == len(due)  # of a longer load nobody knows the number of tokens yet
        record = _new_record([request for session in first for request in session] if is_whole else [])
        record.until_s = until_s if math.isfinite(until_s) else 0.0
        room = asyncio.Semaphore(most) if most else None

        async def begin() -> None:
            async with asyncio.TaskGroup() as group:
                for times_s, session in zip(due, chain(ahead, rest), strict=False):
                    if record.until_s:
                        record.due_s += [time_s for time_s, turn in zip(times_s, session, strict=True) for _ in turn.requests]
                    wait_s = record.begun_s + times_s[0] - CLOCK.span_s()
                    if wait_s > 0:
                        await asyncio.sleep(wait_s)
                    if room is not None:
                        await room.acquire()
                    else:
                        record.late_s.append(max(0.0, CLOCK.span_s() - record.begun_s - times_s[0]))
                    group.create_task(self._session(session, record, room, times_s, until_s))

        return await self._watched(record, [begin()])

    def _encoded(self, session: Session) -> list[_Turn]:
        """The requests as bytes, so that sending one takes no time, in turns: those of one are sent together."""
        turns: list[_Turn] = []
        for request in session:
            one = (self._client.body(request.prompt, request.output_tokens), Reply(request.output_tokens, request.input_tokens))
            if turns and request.is_branch:
                turns[-1].requests.append(one)
            else:
                turns.append(_Turn(request.wait_s, [one]))
        return turns

    async def _session(
        self,
        session: list[_Turn],
        record: LoadRecord,
        room: asyncio.Semaphore | None = None,
        due_s: Sequence[float] = (),
        until_s: float = math.inf,
    ) -> bool:
        """Whether it came to its end in time."""
        try:
            for number, turn in enumerate(session):
                now_s = CLOCK.span_s() - record.begun_s
                wait_s = due_s[number] - now_s if due_s else turn.wait_s
                if now_s + max(0.0, wait_s) > until_s:
                    return False
                if wait_s > 0:
                    await asyncio.sleep(wait_s)
                record.answers += [answer for _, answer in turn.requests]
                if len(turn.requests) == 1:
                    await self._client.ask(*turn.requests[0])
                    continue
                async with asyncio.TaskGroup() as group:
                    for body, answer in turn.requests:
                        group.create_task(self._client.ask(body, answer))
        finally:
            if room is not None:
                room.release()
        return CLOCK.span_s() - record.begun_s < until_s

    async def _watched(self, record: LoadRecord, parts: Sequence[Coroutine[Any, Any, None]]) -> LoadRecord:
        """Run the parts to their end, or until it is time to stop."""
        tasks = [asyncio.ensure_future(part) for part in parts]
        with _no_collection():
            try:
                pending: set[asyncio.Future[None]] = set(tasks)
                while pending and not record.stopped:
                    _, pending = await asyncio.wait(pending, timeout=LOOK_S if self._stop else None)
                    record.stopped = bool(pending) and self._stop is not None and self._stop(record)
            finally:
                for task in tasks:
                    task.cancel()
                ended = await asyncio.gather(*tasks, return_exceptions=True)
        for error in ended:
            if isinstance(error, Exception) and not isinstance(error, asyncio.CancelledError):
                raise error
        record.ended_s = CLOCK.span_s()
        return record


def _new_record(requests: Sequence[PlannedRequest], *, closed: bool = False) -> LoadRecord:
    return LoadRecord(
        begun_s=CLOCK.span_s(),
        closed=closed,
        planned_requests=len(requests),
        planned_tokens=sum(request.output_tokens for request in requests),
        planned_inputs=sum(request.input_tokens for request in requests),
    )


def arrival_times(gaps_s: Iterator[float], requests: int, duration_s: float) -> list[float]:
    """When requests arrive: the first at once, then after each gap, scaled so that their gaps add up to `duration_s`.

    Without that the number of requests in a short time, and with it the rate, would differ by several percent from draw to draw.
    """
    gaps = list(islice(gaps_s, requests))
    scale = duration_s / max(sum(gaps), 1e-9)
    return [0.0, *(scale * time_s for time_s in accumulate(gaps[:-1]))]


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Without the collector of garbage, whose pauses would be taken for the server's."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
