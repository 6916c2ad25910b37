"""The requests of a load: random lengths, those of a traffic description, conversations, files of conversations, traces of requests.

Prompts are random token numbers, or cut from a text, and new ones under every name, so that no cache of the server has seen them; lengths
are the same under every name, so that two measurements of one load differ by the server only.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, cycle
from pathlib import Path
from typing import Any

import numpy as np

from autoscout.core import seeds
from autoscout.load.plan import Load
from autoscout.load.text import PromptText
from autoscout.traffic.description import Traffic, TrafficWindow
from autoscout.traffic.lengths import Even
from autoscout.traffic.requests import SeenRequest, traffic_of
from autoscout.traffic.sessions import SessionShape
from autoscout.traffic.sources.table import MOST_ROWS, json_lines, read_trace, unusable

TRACE_BLOCK = 512  # tokens that one of the numbers `hash_ids` of a Mooncake trace stands for
CHARACTERS = 4.0  # of English text a token, where no tokenizer is at hand
LEAST_BYTES = 2  # of text a token, in English, Chinese or code: longer texts might not fit the server
USUAL = (0.02, 0.8)
"""The part of the vocabulary that prompts are drawn from. Special tokens, placeholders of images and unused rows are at either end."""


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request: what is asked, and how long the answer is to be."""

    prompt: list[int] | str
    output_tokens: int
    wait_s: float = 0.0  # after the answer before it in its session
    is_branch: bool = False  # sent together with the one before it in its session

    @property
    def input_tokens(self) -> int:
        """Tokens of the prompt; a guess for text, until the server has counted them."""
        return len(self.prompt) if isinstance(self.prompt, list) else math.ceil(len(self.prompt) / CHARACTERS)


Session = list[PlannedRequest]


class RequestSource:
    """The requests of a load.

    Args:
        load: What is wanted.
        vocab_size: Tokens the model knows.
        seed: Root of all random numbers.
        text: What prompts are cut from, where they are not random tokens.
        window: Of the traffic that is asked for; the first where there are several.

    Raises:
        ConfigError: the file cannot be used.
    """

    def __init__(self, load: Load, vocab_size: int, seed: int, text: PromptText | None = None, window: TrafficWindow | None = None) -> None:
        self.load = load
        traffic = load.description
        self.window = window or (traffic.judged[0] if traffic is not None and load.workload == "traffic" else None)
        self._text = text
        self._seed = seed
        self._low, self._high = (int(share * vocab_size) for share in USUAL)
        self._talks, self.rows = read_files(load, Path(load.file))

    @property
    def shape(self) -> SessionShape:
        """Of its sessions."""
        return self.window.session if self.window is not None else self.load.session

    def times_s(self) -> list[float]:
        """When the requests of a trace arrive, from 0."""
        return [row.time_s - self.rows[0].time_s for row in self.rows]

    def sessions(self, name: str) -> Iterator[Session]:
        """Requests without end, in sessions of one or more; the same for the same name."""
        tokens = seeds.stream(self._seed, "prompts", name)
        lengths = Even(seeds.stream(self._seed, "lengths"))
        pauses = seeds.stream(self._seed, "pauses")
        shared = self._shared(name)
        prefix = self._tokens(tokens, self.load.prefix_tokens)
        for number in count():
            if self.load.workload == "multi_turn":
                yield self._conversation(tokens, lengths, pauses, prefix)
            elif self.window is not None:
                yield self._asked(tokens, lengths, pauses, shared)
            elif self.load.workload == "sharegpt":
                yield [self._talk(lengths, name, number)]
            elif self.load.workload == "trace":
                yield [self._replayed(tokens, self.rows[number % len(self.rows)], name)]
            else:
                length, output_tokens = self._lengths(lengths)
                yield [self._request(prefix + self._tokens(tokens, length), output_tokens)]

    def _lengths(self, even: Even) -> tuple[int, int]:
        load = self.load
        shape = ((load.input_tokens, load.input_spread), (load.output_tokens, load.output_spread))
        draws = zip(even.draw(), shape, strict=True)
        length, output_tokens = (mean - spread + int(share * (2 * spread + 1)) for share, (mean, spread) in draws)
        return length, output_tokens

    def _request(self, units: list[Any], output_tokens: int) -> PlannedRequest:
        """Tokens as they are; words as one text."""
        return PlannedRequest("".join(units) if units and isinstance(units[0], str) else units, output_tokens)

    def _tokens(self, random: np.random.Generator, length: int) -> list[Any]:
        if self._text is not None:
            return self._text.draw(random, length)
        return [int(token) for token in random.integers(self._low, self._high, length).tolist()]

    def _conversation(self, tokens: np.random.Generator, lengths: Even, pauses: np.random.Generator, prefix: list[Any]) -> Session:
        """Each prompt is the one before it, an answer and a new question. The answer is drawn like a prompt, as none is known yet.

        Branches of a turn have the same history and a question each; the session continues from the first of them.
        """
        turns, branches, _ = self.shape
        requests: Session = []
        history = prefix
        for turn in range(turns):
            wait_s = self._pause_s(pauses) if turn else 0.0
            following: list[Any] = []
            for branch in range(branches):
                length, output_tokens = self._lengths(lengths)
                prompt = history + self._tokens(tokens, length)
                one = self._request(*self._cut(prompt, output_tokens))
                requests.append(replace(one, wait_s=wait_s, is_branch=branch > 0))
                following = following or prompt + self._tokens(tokens, output_tokens)
            history = following
        return requests

    def _asked(self, tokens: np.random.Generator, lengths: Even, pauses: np.random.Generator, shared: list[Any]) -> Session:
        """A session of the traffic: its prompts grow, each with the one before it and its answer at the beginning as far as they have room.

        Without sessions a prompt begins with as many tokens that all have as the server is known to have seen before.
        """
        assert self.window is not None
        turns, branches, _ = self.shape
        drawn = sorted(self.window.draw(lengths) for _ in range(turns * branches))
        requests: Session = []
        history: list[Any] = []
        for number, (length, output_tokens) in enumerate(drawn):
            prefix = (history or shared[: int(length * (self.window.prefix_share or 0.0))])[:length]
            prompt = prefix + self._tokens(tokens, length - len(prefix))
            one = self._request(*self._cut(prompt, output_tokens))
            starts = number % branches == 0
            wait_s = self._pause_s(pauses) if starts and number else 0.0
            requests.append(replace(one, wait_s=wait_s, is_branch=not starts))
            if turns > 1 and number % branches == branches - 1:
                history = prompt + self._tokens(tokens, output_tokens)
        return requests

    def _shared(self, name: str) -> list[Any]:
        """What all prompts of a traffic begin with, long enough for the longest."""
        if self.window is None or not self.window.prefix_share or self.shape.turns > 1:
            return []
        random = seeds.stream(self._seed, "shared", name)
        return self._tokens(random, min(self.load.context or self.window.longest, self.window.longest))

    def _pause_s(self, pauses: np.random.Generator) -> float:
        mean_s = self.shape.pause_s
        return float(pauses.exponential(mean_s)) if mean_s > 0 else 0.0

    def _talk(self, even: Even, name: str, number: int) -> PlannedRequest:
        """A conversation of the file with a fresh number in front, so that no cache of an earlier measurement holds it."""
        text, output_tokens = self._talks[int(even.draw()[0] * len(self._talks))]
        text = f"{seeds.number(self._seed, 'talk', name, number) % 10**9} {text}"
        if room := self.load.context:  # in tokens, which only the server counts
            output_tokens = min(output_tokens, room // 2)
            text = text.encode()[: LEAST_BYTES * (room - output_tokens)].decode(errors="ignore")
        return PlannedRequest(text, output_tokens)

    def _replayed(self, tokens: np.random.Generator, row: SeenRequest, name: str) -> PlannedRequest:
        prompt: list[Any] = []
        for block in row.blocks:
            prompt += self._tokens(seeds.stream(self._seed, "block", name, block), TRACE_BLOCK)
        prompt = prompt[: row.input_tokens]
        return self._request(*self._cut(prompt + self._tokens(tokens, row.input_tokens - len(prompt)), row.output_tokens))

    def _cut(self, prompt: list[Any], output_tokens: int) -> tuple[list[Any], int]:
        """The end of a prompt that is too long for the server is left out; so is that of an answer."""
        if not self.load.context:
            return prompt, output_tokens
        output_tokens = min(output_tokens, self.load.context - 1)
        return prompt[: self.load.context - output_tokens], output_tokens


def gaps(load: Load, seed: int, rate: float, times_s: Sequence[float] = (), window: TrafficWindow | None = None) -> Iterator[float]:
    """Seconds between sessions, without end, that come at `rate` a second on average; the same, scaled, for every rate.

    Args:
        load: How they arrive. A closed loop has no arrivals; where a rate is asked for all the same, they are Poisson.
        seed: Root of the random numbers.
        rate: Sessions a second.
        times_s: Arrivals of a trace, in order; used unless the load says how they arrive.
        window: Of a traffic, whose bursts count where the load has bursts.
    """
    if load.arrival == "closed" and len(times_s) > 1 and times_s[-1] > times_s[0]:
        own = np.diff(times_s) * (len(times_s) - 1) / (times_s[-1] - times_s[0]) / rate
        yield from cycle(own.tolist())
    random = seeds.stream(seed, "arrivals")
    burst = (window.gap_shape if window is not None else None) or load.burstiness
    shape = {"constant": None, "burst": burst}.get(load.arrival, 1.0)
    while True:
        yield 1.0 / rate if shape is None else float(random.gamma(shape, 1.0 / shape)) / rate


def read_files(load: Load, path: Path) -> tuple[list[tuple[str, int]], list[SeenRequest]]:
    """The conversations and the trace that a load is made of; empty where it needs none.

    Raises:
        ConfigError: the file cannot be used.
    """
    return read_talks(path) if load.workload == "sharegpt" else [], read_trace(path) if load.workload == "trace" else []


def read_talks(path: Path) -> list[tuple[str, int]]:
    """First question and length of its answer of each conversation of a ShareGPT-like file.

    Raises:
        ConfigError: it holds no conversation.
    """
    text = _read(path)
    try:
        entries = [one for _, one in json_lines(path, text)] if path.suffix == ".jsonl" else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise unusable(path, f"not valid JSON: {error}") from error
    talks = []
    for one in entries[:MOST_ROWS] if isinstance(entries, list) else []:
        messages = (one.get("conversations") or one.get("conversation") or one.get("messages")) if isinstance(one, Mapping) else None
        parts = messages if isinstance(messages, list) else []
        texts = [str(part.get("value") or part.get("content") or "") for part in parts if isinstance(part, Mapping)]
        if len(texts) >= 2 and texts[0].strip() and texts[1].strip():
            talks.append((texts[0], max(1, round(len(texts[1]) / CHARACTERS))))
    if not talks:
        fix = 'Give a list of {"conversations": [{"from": "human", "value": ...}, {"from": "gpt", "value": ...}]}'
        raise unusable(path, "holds no conversation with a question and an answer", fix)
    return talks


def _read(path: Path) -> str:
    try:
        return path.expanduser().read_text(encoding="utf-8-sig")
    except OSError as error:
        raise unusable(path, f"cannot be read: {error.strerror or error}", "Check the path") from error
    except UnicodeDecodeError as error:
        raise unusable(path, f"is not UTF-8 text: {error.reason} at byte {error.start:,}") from error


def traffic_in(load: Load) -> Traffic | None:
    """What a load asks, as a description: its own, or that of its file; None of lengths that its other fields give.

    Raises:
        ConfigError: the file cannot be used.
    """
    if load.workload == "traffic":
        return load.description
    if load.workload not in ("sharegpt", "trace") or load.client != "builtin":  # another program reads its file in its own way
        return None
    path = Path(load.file)
    talks, rows = read_files(load, path)
    requests = [SeenRequest(0.0, math.ceil(len(text) / CHARACTERS), tokens) for text, tokens in talks]
    return traffic_of(rows or requests, path.name, windows=1)


__all__ = ["PlannedRequest", "RequestSource", "Session", "gaps", "read_files", "read_talks", "read_trace", "traffic_in"]
