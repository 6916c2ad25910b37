"""Continuous batching, step by step: chunked prefill, admission by budget and cache, preemption, queueing.

Runs of equal steps between two events (a finish, an arrival, a full cache) are taken in one go, so that hundreds of requests
take milliseconds.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from autoscout.simulators.serving.cost import StepCost

MOST_ROUNDS = 40_000
"""Events of one run; what has not ended by then counts as not served, and the rates are those of what has. A fraction of a second."""


@dataclass(frozen=True, kw_only=True)
class SimulatedRequest:
    """What a client asks for; `arrival_s` is ignored in a closed loop."""

    input_tokens: int
    output_tokens: int
    arrival_s: float = 0.0
    cached_tokens: int = 0  # at the beginning of the prompt, that the engine has computed before: it reads only the rest


@dataclass(frozen=True, kw_only=True)
class EngineLimits:
    """What bounds a step of the engine."""

    max_requests: int = 256
    max_step_tokens: int = 8192
    cache_tokens: float = math.inf
    free_share: float = 0.01  # of the cache, that stays free when a request is admitted (vLLM's watermark)
    kept_share: float = 0.7  # of the tokens that admitted requests still have to write, for which room is kept; below 1 some are evicted
    chunked: bool = True  # prompts may be cut to fit into a step
    cached: bool = False  # prompts come with their cache and first token, from engines that compute nothing else
    mixed: bool = True  # prompts share their steps with decoding; otherwise they go first and decoding waits


@dataclass(frozen=True, kw_only=True)
class Bars:
    """What most requests must keep; once more than `late` of them pass one of the two, the run has failed and ends."""

    first_s: float = math.inf
    late_first: int = 0
    interval_s: float = math.inf
    late_interval: int = 0


@dataclass(kw_only=True)
class Reach:
    """What a run used of each limit; infinite where the limit was met, so that a wider one would have led to another run."""

    requests: float = 0.0
    step_tokens: float = 0.0
    cache_tokens: float = 0.0

    def same(self, ran: EngineLimits, other: EngineLimits) -> bool:
        """Whether the run under the limits `ran` would have been the same, step by step, under `other`."""
        steps, room = (
            ((one.max_step_tokens, one.chunked) for one in (ran, other)),
            ((one.cache_tokens, one.kept_share) for one in (ran, other)),
        )
        return (
            ((ran.mixed, ran.cached, ran.free_share) == (other.mixed, other.cached, other.free_share))
            and (other.max_requests == ran.max_requests or other.max_requests >= self.requests)
            and (len(set(steps)) == 1 or other.max_step_tokens >= self.step_tokens)
            and (len(set(room)) == 1 or other.cache_tokens >= self.cache_tokens)
        )


@dataclass(frozen=True, kw_only=True)
class Served:
    """What the clients saw, one entry per request in order."""

    first_token_s: NDArray[np.float64]  # from arrival
    interval_s: NDArray[np.float64]  # mean between output tokens
    total_s: NDArray[np.float64]
    gaps_s: NDArray[np.float64]  # between two output tokens of a request, and
    gap_tokens: NDArray[np.float64]  # how many tokens came after such a gap
    finished_s: float  # when the last one ended
    preemptions: int
    output_tokens: int
    outputs: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))  # tokens of each answer
    reach: Reach = field(default_factory=Reach)
    failed: bool = False  # too many requests passed the bars, and the run ended there


@dataclass(eq=False)
class _Running:
    number: int
    prompt: int  # tokens to process before the first (or next) output token
    remaining: int  # output tokens still to come
    arrival_s: float
    done: int = 0  # prompt tokens processed
    context: int = 0  # tokens in the cache when decoding began
    since: int = 0  # step at which decoding began
    first_s: float = math.nan
    alive: bool = True


@dataclass
class LoopState:
    now_s: float = 0.0
    steps: int = 0
    waiting: deque[_Running] = field(default_factory=deque)
    filling: list[_Running] = field(default_factory=list)
    decoding: dict[int, _Running] = field(default_factory=dict)  # by number, in order of admission
    finish: list[tuple[int, int, _Running]] = field(default_factory=list)  # heap by step, then by order of entry
    entries: int = 0
    context: int = 0  # tokens in the cache of those that decode
    owed: int = 0  # steps at which those that decode will end, added up: less the steps so far, the tokens they still have to write
    preemptions: int = 0
    stalled_s: float = 0.0  # since the last token of those that decode, spent on prompts alone
    gaps: list[tuple[float, int]] = field(default_factory=list)  # seconds before a token, and tokens that waited so

    @property
    def used(self) -> int:
        """Tokens of cache that are given away: a prompt holds its room from the moment it is admitted."""
        return self.context + sum([one.prompt for one in self.filling]) if self.filling else self.context

    @property
    def unwritten(self) -> int:
        """Tokens that those who were admitted still have to write."""
        return self.owed - self.steps * len(self.decoding) + sum(one.remaining for one in self.filling)


def serve(
    requests: Sequence[SimulatedRequest], cost: StepCost, limits: EngineLimits, concurrency: int | None = None, bars: Bars | None = None
) -> Served:
    """Run all requests: at their arrival times, or `concurrency` at a time (each finish lets the next one in)."""
    loop = _Loop(requests, cost, limits, concurrency, bars or Bars())
    loop.run()
    return loop.served()


class _Loop:
    def __init__(
        self, requests: Sequence[SimulatedRequest], cost: StepCost, limits: EngineLimits, concurrency: int | None, bars: Bars
    ) -> None:
        self._requests, self._cost, self._limits, self._bars = requests, cost.plain(), limits, bars
        self._late_first, self._late_interval = bars.late_first, bars.late_interval  # how many may still be late
        order = range(len(requests)) if concurrency else sorted(range(len(requests)), key=lambda number: requests[number].arrival_s)
        self._coming = deque(order)
        self._closed = concurrency is not None
        self._state = LoopState()
        self._reach = Reach()
        self._failed = False
        self._first = np.full(len(requests), np.nan)
        self._end = np.full(len(requests), np.nan)
        self._arrived = np.zeros(len(requests))
        for _ in range(min(concurrency or 0, len(requests))):
            self._arrive(0.0)

    def run(self) -> None:
        state = self._state
        for _ in range(MOST_ROUNDS):
            if not (self._coming or state.waiting or state.filling or state.decoding):
                return
            if self._coming and not self._closed:
                self._arrivals()
            if self._has_failed():
                self._failed = True
                return
            if not (state.waiting or state.filling or state.decoding):
                state.now_s = self._requests[self._coming[0]].arrival_s
                continue
            self._schedule()
            if state.filling:
                self._mixed_step()
            elif state.decoding:
                self._decode_steps()
            elif state.waiting:  # nothing can ever be admitted: the prompt alone is larger than the cache
                self._give_up(state.waiting.popleft())

    def _has_failed(self) -> bool:
        """Whether more requests are late than may be, those included that already wait too long for their first token."""
        state, may = self._state, self._late_first
        if may < 0 or self._late_interval < 0:
            return True
        if len(state.waiting) <= may or state.preemptions:  # who was evicted has had its first token
            return False
        return bool(state.now_s - state.waiting[may].arrival_s + self._cost.first_s > self._bars.first_s)

    def _schedule(self) -> None:
        """Those that decode come first; where one of them had to go, nobody is admitted in the same step. Engines that stop for prompts
        admit first and make room when they decode."""
        state, mixed = self._state, self._limits.mixed
        if not mixed and state.waiting:
            self._admit()
        if mixed or not state.filling:
            evicted = self._make_room(len(state.decoding)) if state.decoding else False
            if mixed and state.waiting and not evicted:
                self._admit()

    def served(self) -> Served:
        outputs = np.array([request.output_tokens for request in self._requests], dtype=float)
        good = np.isfinite(self._end)
        interval = np.where(outputs > 1.0, (self._end - self._first) / np.maximum(1.0, outputs - 1.0), np.nan)  # one token has none
        return Served(
            first_token_s=self._first - self._arrived + self._cost.first_s,
            interval_s=interval,
            total_s=self._end - self._arrived + self._cost.first_s,
            gaps_s=np.array([gap for gap, _ in self._state.gaps]),
            gap_tokens=np.array([float(tokens) for _, tokens in self._state.gaps]),
            finished_s=float(np.max(self._end[good], initial=0.0)),
            preemptions=self._state.preemptions,
            output_tokens=int(outputs[good].sum()),
            outputs=outputs,
            reach=self._reach,
            failed=self._failed,
        )

    def _arrive(self, now_s: float) -> None:
        number = self._coming.popleft()
        request = self._requests[number]
        self._arrived[number] = now_s
        done = min(request.cached_tokens, request.input_tokens - 1)
        one = _Running(number=number, prompt=request.input_tokens, remaining=request.output_tokens, arrival_s=now_s, done=done)
        self._state.waiting.append(one)

    def _arrivals(self) -> None:
        while self._coming and self._requests[self._coming[0]].arrival_s <= self._state.now_s:
            self._arrive(self._requests[self._coming[0]].arrival_s)

    def _admit(self) -> None:
        state, limits, reach = self._state, self._limits, self._reach
        decoding = len(state.decoding)
        asked = decoding + sum(one.prompt - one.done for one in state.filling)  # tokens of the next step
        used, unwritten = state.used, state.unwritten
        room = limits.cache_tokens * (1.0 - limits.free_share)
        while state.waiting:
            first, running = state.waiting[0], decoding + len(state.filling)
            if running >= limits.max_requests:
                reach.requests = math.inf
                return
            if asked >= limits.max_step_tokens:
                reach.step_tokens = math.inf
                return
            if running:
                fits = used + first.prompt + 1 + limits.kept_share * (unwritten + first.remaining) <= room
            else:  # nobody to keep room for
                fits = first.prompt + 1 <= limits.cache_tokens
            if not fits:
                reach.cache_tokens = math.inf
                return
            if not limits.chunked and asked + first.prompt - first.done > limits.max_step_tokens and state.filling:
                reach.step_tokens = math.inf
                return
            state.waiting.popleft()
            used += first.prompt
            unwritten += first.remaining
            reach.requests = max(reach.requests, running + 1)
            reach.cache_tokens = max(reach.cache_tokens, (used + unwritten + 1) / (1.0 - limits.free_share))
            if limits.cached:
                reach.step_tokens = max(reach.step_tokens, asked + 1)
                self._start_decoding(first)
                decoding = len(state.decoding)
                continue
            state.filling.append(first)
            asked += first.prompt - first.done
            reach.step_tokens = max(reach.step_tokens, asked)

    def _mixed_step(self) -> None:
        """One step that carries prompt tokens and, where the engine mixes them, one token for every request that decodes."""
        state, limits = self._state, self._limits
        decoding = len(state.decoding) if limits.mixed else 0
        budget = max(1, limits.max_step_tokens - decoding)
        prompt_tokens, prompt_work = 0, 0.0
        for one in state.filling:
            rest = one.prompt - one.done
            part = min(rest, budget) if limits.chunked else rest
            prompt_tokens += part
            prompt_work += part * (one.done + part / 2.0)
            one.done += part
            budget -= part
            if budget <= 0:
                break
        taken_s = self._cost.step_s(decoding, state.context if decoding else 0, prompt_tokens, prompt_work)
        state.now_s += taken_s
        self._token(taken_s, decoding)
        if limits.mixed:
            state.steps += 1  # steps count tokens of those that decode
            state.context += decoding
            self._finish_due()
        ready = [one for one in state.filling if one.done >= one.prompt]
        if len(ready) < len(state.filling):
            self._reach.step_tokens = math.inf
            state.filling = [one for one in state.filling if one.done < one.prompt]
        else:
            state.filling = []
        for one in ready:
            self._start_decoding(one)

    def _start_decoding(self, one: _Running) -> None:
        state = self._state
        if math.isnan(self._first[one.number]):
            self._first[one.number] = state.now_s
            if state.now_s - one.arrival_s + self._cost.first_s > self._bars.first_s:
                self._late_first -= 1
        one.remaining -= 1
        one.context, one.since = one.prompt + 1, state.steps
        if one.remaining <= 0:
            self._end[one.number] = state.now_s
            self._next()
            return
        state.decoding[one.number] = one
        state.context += one.context
        state.owed += state.steps + one.remaining
        state.entries += 1
        heapq.heappush(state.finish, (state.steps + one.remaining, state.entries, one))

    def _decode_steps(self) -> None:
        """Take all pure decode steps that pass before anything changes."""
        state = self._state
        count = len(state.decoding)
        until = self._next_finish() - state.steps
        taken_s = self._cost.step_s(count, state.context, 0, 0.0)
        if not self._closed and self._coming:
            gap_s = self._requests[self._coming[0]].arrival_s - state.now_s
            until = min(until, max(1, math.ceil(gap_s / taken_s)))
        room = self._limits.cache_tokens - state.context
        steps = int(max(1, min(until, room // count if math.isfinite(room) else until)))
        self._reach.cache_tokens = max(self._reach.cache_tokens, state.context + count * until if steps == until else math.inf)
        taken_s += self._cost.cache_token_s * count * (steps - 1) / 2.0  # in the middle of them
        state.now_s += steps * taken_s
        self._token(taken_s, count)
        if steps > 1:
            self._token(taken_s, count * (steps - 1))
        state.steps += steps
        state.context += steps * count
        self._finish_due()

    def _token(self, taken_s: float, tokens: int) -> None:
        """Note what the tokens of a step waited for; a step without any makes the next ones wait longer."""
        state = self._state
        if tokens:
            state.gaps.append((taken_s + state.stalled_s, tokens))
            state.stalled_s = 0.0
        elif state.decoding:
            state.stalled_s += taken_s

    def _next_finish(self) -> int:
        finish = self._state.finish
        while not finish[0][2].alive:
            heapq.heappop(finish)
        return finish[0][0]

    def _finish_due(self) -> None:
        state = self._state
        while state.finish and (state.finish[0][0] <= state.steps or not state.finish[0][2].alive):
            _, _, one = heapq.heappop(state.finish)
            if one.alive:
                del state.decoding[one.number]
                state.context -= one.context + state.steps - one.since
                state.owed -= one.since + one.remaining
                self._end[one.number] = state.now_s
                tokens = self._requests[one.number].output_tokens
                if state.now_s - self._first[one.number] > self._bars.interval_s * max(1, tokens - 1):
                    self._late_interval -= 1
                self._next()

    def _next(self) -> None:
        if self._closed and self._coming:
            self._arrive(self._state.now_s)

    def _make_room(self, tokens: int) -> bool:
        """Send the youngest back to the queue until the next step fits, where it starts over with what it has written so far.

        Says whether anybody had to go.
        """
        state, before = self._state, len(self._state.decoding)
        need = state.used + tokens
        if need <= self._limits.cache_tokens:
            if need > self._reach.cache_tokens:
                self._reach.cache_tokens = need
            return False
        self._reach.cache_tokens = math.inf
        while len(state.decoding) > 1 and state.used + tokens > self._limits.cache_tokens:
            number, one = state.decoding.popitem()
            written = state.steps - one.since
            state.context -= one.context + written
            state.owed -= one.since + one.remaining
            one.alive = False
            again = _Running(number=number, prompt=one.context + written, remaining=one.remaining - written, arrival_s=one.arrival_s)
            state.waiting.appendleft(again)
            state.preemptions += 1
            tokens = len(state.decoding)
        if len(state.decoding) == 1 and state.used + 1 > self._limits.cache_tokens and not state.filling:
            _, one = state.decoding.popitem()
            one.alive = False
            state.context = state.owed = 0
            self._give_up(one)
        return len(state.decoding) < before

    def _give_up(self, one: _Running) -> None:
        """A request that can never fit; it counts as never finished."""
        self._end[one.number] = np.nan
        self._next()


__all__ = ["Bars", "EngineLimits", "Reach", "Served", "SimulatedRequest", "serve"]
