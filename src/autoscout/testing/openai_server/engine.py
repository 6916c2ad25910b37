"""The engine inside the fake server: continuous batching as a queue, with times from a formula and tokens from the prompt."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import zlib
from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from autoscout.core.clock import RealClock
from autoscout.testing.openai_server.settings import Settings

BLOCK = 16  # tokens of a prompt that a cache keeps together
TOP = 5  # tokens whose log-probability is told, at most
CLOCK = RealClock()

OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB."
NO_CACHE = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine."
DEAD = "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause."


@dataclass(kw_only=True)
class Request:
    """One request on its way."""

    prompt: list[int]
    max_tokens: int
    send: Callable[[int, int, bool], None]  # number of the token, token (or -1 for none), whether it is the last
    arrived_s: float
    prefill: int  # tokens of the prompt still to be computed
    cached: int = 0
    tokens: int = 0
    root: int = 0  # what its tokens follow from
    text: bool = False  # whether its prompt is text
    first_s: float = 0.0
    gone: bool = False  # the client went away


@dataclass
class Counters:
    """What the engine tells of itself."""

    requests: int = 0
    finished: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    ttft_s: float = 0.0
    e2el_s: float = 0.0
    steps: int = 0
    extra: dict[str, float] = field(default_factory=dict)


class StandInEngine:
    """Steps through its requests; every step takes as long as the formula says."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.speculation = replace(settings.speculation, words=set())
        self.counters = Counters()
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self._work = asyncio.Event()
        self._prefixes: set[int] = set()
        self._free_s = 0.0

    @property
    def held(self) -> int:
        """Tokens of KV cache in use."""
        return sum(len(request.prompt) + request.tokens for request in self.running)

    def submit(self, prompt: list[int], max_tokens: int, send: Callable[[int, int, bool], None]) -> Request:
        """Queue a request; `send` gets its tokens."""
        self.counters.requests += 1
        request = Request(
            prompt=prompt,
            max_tokens=max_tokens,
            send=send,
            arrived_s=CLOCK.span_s(),
            prefill=len(prompt),
            root=zlib.crc32(array("q", prompt).tobytes()),
            text=self.speculation.is_text(prompt),
        )
        self.waiting.append(request)
        self._work.set()
        return request

    async def run(self) -> None:
        """Step for ever."""
        while True:
            self._drop()
            if not self.running and not self.waiting:
                self._work.clear()
                await self._work.wait()
                self._free_s = CLOCK.span_s()
            self._misbehave()
            if self.settings.is_failing("hang", self.counters.requests):
                await asyncio.sleep(3600)
            decoding, prefilled = self._admit()
            step_s = (
                self.settings.step_ms / 1e3
                + self.settings.sequence_us / 1e6 * len(decoding) * self.speculation.tokens
                + self.settings.prefill_us / 1e6 * sum(tokens for _, tokens in prefilled)
            )
            self._free_s += step_s
            await asyncio.sleep(max(0.0, self._free_s - CLOCK.span_s()))  # by the sum of all steps, so that late wake-ups do not add up
            self._free_s = max(self._free_s, CLOCK.span_s() - 1.0)  # a machine that was busy for long is not caught up with
            self.counters.steps += 1
            for request, tokens in prefilled:
                request.prefill -= tokens
                if request.prefill == 0:
                    self._emit(request)
            for request in decoding:
                self._step(request)
            self.running = [request for request in self.running if request.tokens < request.max_tokens]

    def _admit(self) -> tuple[list[Request], list[tuple[Request, int]]]:
        """Who decodes in this step, and who computes how much of its prompt."""
        settings = self.settings
        decoding = [request for request in self.running if request.prefill == 0]
        budget = settings.max_num_batched_tokens - len(decoding)
        prefilled: list[tuple[Request, int]] = []
        for request in self.running:
            if request.prefill and budget > 0:
                tokens = min(budget, request.prefill)
                prefilled.append((request, tokens))
                budget -= tokens
        held = self.held
        while self.waiting and budget > 0 and len(self.running) < settings.max_num_seqs:
            request = self.waiting[0]
            held += len(request.prompt) + request.max_tokens
            if held > settings.kv_tokens and self.running:
                break
            self.waiting.popleft()
            if settings.prefix_caching:
                self._look_up(request)
            tokens = min(budget, request.prefill)
            prefilled.append((request, tokens))
            budget -= tokens
            self.running.append(request)
        return decoding, prefilled

    def _look_up(self, request: Request) -> None:
        """Leave out what a prefix cache still has, and remember the prompt."""
        code, hit = 0, True
        for at in range(0, len(request.prompt) - BLOCK + 1, BLOCK):
            code = zlib.crc32(array("q", request.prompt[at : at + BLOCK]).tobytes(), code)
            hit = hit and code in self._prefixes
            if hit:
                request.cached = at + BLOCK
            else:
                self._prefixes.add(code)
        request.cached = min(request.cached, len(request.prompt) - 1)  # the last token is always computed
        request.prefill -= request.cached
        self.counters.cached_tokens += request.cached

    def _step(self, request: Request) -> None:
        """One more token, and those that were guessed right."""
        right = self.speculation.right(request.root, request.tokens, text=request.text)
        for _ in range(min(1 + right, request.max_tokens - request.tokens)):
            self._emit(request)

    def _emit(self, request: Request) -> None:
        counters, now_s = self.counters, CLOCK.span_s()
        if request.tokens == 0:
            request.first_s = now_s
            counters.ttft_s += now_s - request.arrived_s
            counters.input_tokens += len(request.prompt)
        number = request.tokens
        token = self.token(request.root, number)
        request.tokens += 1
        counters.output_tokens += 1
        if self.settings.is_failing("short", counters.requests) and request.tokens > 1:
            request.tokens = request.max_tokens
        last = request.tokens >= request.max_tokens
        if last:
            counters.finished += 1
            counters.e2el_s += now_s - request.arrived_s
        if not request.gone:
            request.send(number, token, last)

    def token(self, root: int, number: int) -> int:
        """The token with this number of an answer; -1 for none."""
        requests = self.counters.requests
        if self.settings.is_failing("repeat", requests):
            return 7
        if self.settings.is_failing("empty", requests):
            return -1
        salt = 99 if self.settings.is_failing("garbage", requests) else 0
        return (root * 2654435761 + (number + salt + 1) * 40503 * (root | 1)) % 4294967291 % self.settings.vocab_size

    def logprob(self, token: int, number: int) -> float:
        """The log-probability of a token of an answer, a little different in a lossy configuration."""
        if self.settings.is_failing("nan", self.counters.requests):
            return float("nan")
        value = -0.1 - (token * 31 + number * 17) % 997 / 997
        return value - 0.02 * ((token + number) % 3) if self.settings.lossy else value

    def _drop(self) -> None:
        """Forget requests whose client went away."""
        if any(request.gone for request in self.running):
            self.running = [request for request in self.running if not request.gone]
        if any(request.gone for request in self.waiting):
            self.waiting = deque(request for request in self.waiting if not request.gone)

    def _misbehave(self) -> None:
        requests = self.counters.requests
        if self.settings.is_failing("kill", requests):
            os.kill(os.getpid(), signal.SIGKILL)
        if self.settings.is_failing("oom_run", requests):
            die(f"(EngineCore_0 pid=7) ERROR 11-16 09:15:55 [core.py:12] {OUT_OF_MEMORY}\n{DEAD}")
        if self.settings.is_failing("crash", requests):
            die('Traceback (most recent call last):\n  File "core.py", line 12, in step\nRuntimeError: an illegal step was taken')


def die(words: str) -> None:
    """End the process at once with these last words."""
    print(words, file=sys.stderr, flush=True)
    os._exit(1)
