"""Sessions as a server meets them that has served them for ever: when a load begins, many of them are under way.

A session asks several times, with pauses between. One that begins with the load sends its second request a pause later, so a load of new
sessions alone asks far less at first than it says, and still asks long after its end. Here sessions have been arriving for longer than any
of them lasts, and a load is a piece of that: it begins with sessions in the middle of their conversations, and ends at a moment.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from autoscout.load.load import arrival_times
from autoscout.load.workload import PlannedRequest, Session
from autoscout.traffic.sessions import SessionShape

ORIGINS = 400  # moments at which a load may begin; the one after which as many requests come as are asked for is taken
SPANS = 8  # lengths of a load over which these are spread
RAMP_WEIGHT = 0.25  # of a wrong number of requests before those that count
TAIL = 4.0  # standard deviations beyond the mean, and mean pauses, that no session lasts longer


@dataclass(frozen=True, slots=True)
class DueSession:
    """When a session asks during a load.

    Attributes:
        first: The first of its turns that the load sees, from 0.
        due_s: When this and its later turns are due, in seconds from the beginning of the load.
    """

    first: int
    due_s: tuple[float, ...]


class Span(NamedTuple):
    """How long a load lasts: requests count after the ramp."""

    ramp_s: float
    count_s: float

    @property
    def whole_s(self) -> float:
        return self.ramp_s + self.count_s


def due_sessions(
    shape: SessionShape, rate: float, gaps_s: Iterator[float], random: np.random.Generator, answer_s: float, span: Span
) -> list[DueSession]:
    """The sessions of a load whose requests come at `rate` a second, in the order in which the load meets them.

    Args:
        shape: Of every session.
        rate: Requests a second.
        gaps_s: Between the beginnings of two sessions.
        random: For the pauses.
        answer_s: How long an answer takes, roughly. The next turn is due a pause after that.
        span: Of the load.
    """
    sessions_a_s = rate / shape.requests
    if shape.turns == 1:
        times_s = arrival_times(gaps_s, max(1, round(sessions_a_s * span.whole_s)), span.whole_s)
        return [DueSession(0, (time_s,)) for time_s in times_s]
    past_s = _longest_s(shape, answer_s)
    until_s = past_s + (SPANS + 1) * span.whole_s
    count = max(1, math.ceil(until_s * sessions_a_s))
    starts_s = np.cumsum(np.fromiter(islice(gaps_s, count), float))
    starts_s *= until_s / starts_s[-1]
    turns_s = starts_s[:, None] + _turns_s(shape, count, random, answer_s)
    origin_s = _origin_s(np.sort(turns_s, axis=None), rate / shape.branches, past_s, span)
    sessions = []
    for times_s in turns_s - origin_s:
        inside = np.flatnonzero((times_s >= 0) & (times_s < span.whole_s))
        if len(inside):
            sessions.append(DueSession(int(inside[0]), tuple(times_s[inside].tolist())))
    return sorted(sessions, key=lambda one: one.due_s[0])


def clients_under_way(shape: SessionShape, clients: int, random: np.random.Generator, answer_s: float) -> list[DueSession]:
    """The next turn of each of as many clients, who have one session after the other."""
    found = []
    for _ in range(clients):
        now_s = -float(random.uniform(1.0, 2.0)) * _longest_s(shape, answer_s)
        while True:
            turns_s = now_s + _turns_s(shape, 1, random, answer_s)[0]
            now_s = float(turns_s[-1]) + answer_s
            if turns_s[-1] >= 0:
                first = int(np.flatnonzero(turns_s >= 0)[0])
                found.append(DueSession(first, tuple(turns_s[first:].tolist())))
                break
    return found


def under_way(sessions: Iterable[Session], due: Sequence[DueSession], branches: int) -> tuple[list[Session], list[Session]]:
    """Of each session the requests that its load sees, the first of which waits until it is due; and what those that are not new have said
    before, each as one request for a token more: a server that has served them has seen that."""
    parts: list[Session] = []
    before: list[Session] = []
    for session, one in zip(sessions, due, strict=False):
        at = one.first * branches
        first, *rest = session[at : at + len(one.due_s) * branches]
        parts.append([replace(first, wait_s=one.due_s[0]), *rest])
        if one.first and (history := _history(session[at - branches], first)):
            before.append([PlannedRequest(history, 1)])
    return parts, before


def _history(before: PlannedRequest, after: PlannedRequest) -> list[int] | str:
    """What a request has in common with the answer to the one before it; of words only the prompt, as nobody knows those of the answer."""
    if isinstance(after.prompt, str):
        return before.prompt
    return after.prompt[: min(len(after.prompt) - 1, len(before.prompt) + before.output_tokens)]


def _longest_s(shape: SessionShape, answer_s: float) -> float:
    """Hardly any session lasts longer."""
    pauses = shape.turns - 1
    return shape.turns * answer_s + shape.pause_s * (pauses + TAIL * (1 + math.sqrt(pauses)))


def _turns_s(shape: SessionShape, count: int, random: np.random.Generator, answer_s: float) -> NDArray[np.float64]:
    """When each turn of each session is due, from the beginning of its session."""
    steps_s = random.exponential(1.0, (count, shape.turns)) * shape.pause_s + answer_s
    steps_s[:, 0] = 0.0
    return np.cumsum(steps_s, axis=1)


def _origin_s(times_s: NDArray[np.float64], turns_a_s: float, past_s: float, span: Span) -> float:
    """The moment after which turns come most nearly as often as they are asked for."""
    origins_s = past_s + np.linspace(0.0, SPANS * span.whole_s, ORIGINS)
    marks = [np.searchsorted(times_s, origins_s + at_s) for at_s in (0.0, span.ramp_s, span.whole_s)]
    ramp = np.abs(marks[1] - marks[0] - turns_a_s * span.ramp_s)
    count = np.abs(marks[2] - marks[1] - turns_a_s * span.count_s)
    return float(origins_s[int(np.argmin(count + RAMP_WEIGHT * ramp))])


__all__ = ["DueSession", "Span", "clients_under_way", "due_sessions", "under_way"]
