"""The clients: send requests to the server, note when each token comes, and turn that into the canonical metrics.

Definitions as in vLLM's serving benchmark: time to first token and end-to-end latency count from sending; the time per
output token is `(e2el - ttft) / (tokens - 1)`; inter-token latencies are the gaps between pieces of a stream.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

from autoscout.backends.llamacpp.workload import LATENCIES, STATISTICS
from autoscout.core.clock import Clock
from autoscout.core.to_beat import Over, latency_at_least, rate_at_most
from autoscout.load.answers import statistic, statistics

LOOK_S = 0.2  # how often a load is asked whether it may end


class Completes(Protocol):
    """What is needed of a server."""

    def stream(self, request: Mapping[str, Any], callback: Callable[[str], object]) -> object: ...


class Refused(Exception):  # noqa: N818 - an answer of the server
    """The server answered with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{message} (code {code})")
        self.code = code


class WrongAnswer(Exception):  # noqa: N818 - an answer of the server
    """The server answered, but not what was asked for."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One request, answered."""

    ttft_s: float
    e2el_s: float
    gaps_s: tuple[float, ...]
    prompt_tokens: int
    output_tokens: int

    @property
    def tpot_s(self) -> float:
        return (self.e2el_s - self.ttft_s) / max(1, self.output_tokens - 1)


def ask(server: Completes, clock: Clock, prompt: Sequence[int], output_tokens: int) -> Answer:
    """Send one request and wait for its last token.

    Raises:
        Refused: the server answered with an error.
        WrongAnswer: too few tokens, no text, or a prompt that was served from a cache.
    """
    request = {
        "prompt": list(prompt),
        "max_tokens": output_tokens,
        "stream": True,
        "ignore_eos": True,
        "cache_prompt": False,
        "temperature": 0.0,
    }
    pieces: list[tuple[float, str]] = []
    begun_s = clock.span_s()
    server.stream(request, lambda piece: pieces.append((clock.span_s(), piece)))
    return _checked(begun_s, pieces, len(prompt), output_tokens)


def _checked(begun_s: float, pieces: list[tuple[float, str]], prompt_tokens: int, output_tokens: int) -> Answer:
    times: list[float] = []
    text = ""
    usage: dict[str, Any] = {}
    timings: dict[str, Any] = {}
    for time_s, piece in pieces:
        data = json.loads(piece)
        error = data.get("error")
        if error:
            raise Refused(int(error.get("code", 500)), str(error.get("message", error)))
        usage, timings = data.get("usage") or usage, data.get("timings") or timings
        content = "".join(choice.get("text") or "" for choice in data.get("choices", ()))
        if content:
            times.append(time_s)
            text += content
    got = int(usage.get("completion_tokens", 0))
    if got != output_tokens:
        raise WrongAnswer(f"asked for {output_tokens} tokens, got {got}")
    if not text.strip("\ufffd \n") or not times:
        raise WrongAnswer(f"{got} tokens, but no readable text")
    read = int(timings.get("prompt_n", prompt_tokens))
    if int(usage.get("prompt_tokens", 0)) < prompt_tokens or read < prompt_tokens:
        raise WrongAnswer(f"only {read} of {prompt_tokens} prompt tokens were computed: the rest came from a cache")
    gaps = tuple(later - earlier for earlier, later in pairwise(times))
    return Answer(
        ttft_s=times[0] - begun_s, e2el_s=times[-1] - begun_s, gaps_s=gaps, prompt_tokens=prompt_tokens, output_tokens=output_tokens
    )


def run_load(
    server: Completes,
    clock: Clock,
    prompts: Sequence[Sequence[int]],
    output_tokens: int,
    clients: int,
    enough_s: float = math.inf,
    over: Over | None = None,
) -> dict[str, float]:
    """Send the prompts, `clients` at a time, and give the metrics of this one repeat.

    Every client sends one; no further request begins after `enough_s`. Where the machine is so busy that spinning threads starve
    each other, one repeat would take minutes, and a rate needs fewer requests than that.

    Args:
        server: Answers.
        clock: Dates the answers.
        prompts: One per request.
        output_tokens: Of every answer.
        clients: Requests at once.
        enough_s: See above.
        over: Asked now and then with the best metrics that the repeat can still reach; it ends where the answer is yes, and the requests
            under way are left alone.

    Raises:
        Refused, WrongAnswer: the first thing that went wrong with any request.
    """
    waiting = iter(prompts)
    lock = threading.Lock()
    answers: list[Answer] = []
    failures: list[BaseException] = []
    stopped = threading.Event()

    def client() -> None:
        first = True
        while not failures and not stopped.is_set():
            with lock:
                prompt = next(waiting, None) if first or clock.span_s() - begun_s < enough_s else None
            first = False
            if prompt is None:
                return
            try:
                answers.append(ask(server, clock, prompt, output_tokens))
            except BaseException as error:  # raised again by the thread that counts
                failures.append(error)

    begun_s = clock.span_s()
    threads = [threading.Thread(target=client, name=f"client-{number}", daemon=True) for number in range(min(clients, len(prompts)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive() and not stopped.is_set():
            thread.join(None if over is None else LOOK_S)
            elapsed_s = clock.span_s() - begun_s
            if over is not None and elapsed_s > 0 and over(bounds(list(answers), prompts, output_tokens, elapsed_s)):
                stopped.set()
    duration_s = clock.span_s() - begun_s
    if failures:
        raise failures[0]
    return summary(list(answers), duration_s)


def bounds(answers: Sequence[Answer], prompts: Sequence[Sequence[int]], output_tokens: int, elapsed_s: float) -> dict[str, float]:
    """The best rates and latencies that a repeat can still reach."""
    read, produced = sum(map(len, prompts)), len(prompts) * output_tokens
    found = {
        "output_throughput": rate_at_most(produced, elapsed_s),
        "total_token_throughput": rate_at_most(read + produced, elapsed_s),
        "request_throughput": rate_at_most(len(prompts), elapsed_s),
    }
    for latency, values in (("ttft_ms", [one.ttft_s for one in answers]), ("e2el_ms", [one.e2el_s for one in answers])):
        for name in STATISTICS:
            found[f"{name}_{latency}"] = latency_at_least([1000 * value for value in values], len(prompts), partial(statistic, name=name))
    return found


def summary(answers: Sequence[Answer], duration_s: float) -> dict[str, float]:
    """The canonical metrics of one repeat."""
    produced = sum(answer.output_tokens for answer in answers)
    read = sum(answer.prompt_tokens for answer in answers)
    found = {
        "output_throughput": produced / duration_s,
        "total_token_throughput": (produced + read) / duration_s,
        "request_throughput": len(answers) / duration_s,
        "completed": float(len(answers)),
    }
    values: dict[str, list[float]] = {
        "ttft_ms": [answer.ttft_s for answer in answers],
        "tpot_ms": [answer.tpot_s for answer in answers],
        "itl_ms": [gap for answer in answers for gap in answer.gaps_s],
        "e2el_ms": [answer.e2el_s for answer in answers],
    }
    for latency in LATENCIES:
        found |= {f"{name}_{latency}": 1000 * value for name, value in statistics(values[latency], STATISTICS).items()}
    return found
