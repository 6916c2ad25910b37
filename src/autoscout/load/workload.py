"""The requests of a load: random lengths, conversations, files of conversations, traces of requests.

Prompts are random token numbers, or cut from a text, and new ones under every name, so that no cache of the server has seen them; lengths
are the same under every name, so that two measurements of one load differ by the server only.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import count, cycle
from pathlib import Path
from typing import Any

import numpy as np

from autoscout.common.fields import refuse_if, shown
from autoscout.core import seeds
from autoscout.core.errors import ConfigError, Fault
from autoscout.load.plan import Load
from autoscout.load.text import PromptText

TRACE_BLOCK = 512  # tokens that one of the numbers `hash_ids` of a Mooncake trace stands for
CHARACTERS = 4.0  # of English text a token, where no tokenizer is at hand
LEAST_BYTES = 2  # of text a token, in English, Chinese or code: longer texts might not fit the server
MOST_ROWS = 200_000  # of a file that are read
STEPS = np.array([(math.sqrt(5) - 1) / 2, math.sqrt(2) - 1])  # of `_Even`: the two irrational steps that fill an interval most evenly
USUAL = (0.02, 0.8)
"""The part of the vocabulary that prompts are drawn from. Special tokens, placeholders of images and unused rows are at either end."""

_COLUMNS = {
    "time": ("timestamp", "arrival_time", "arrived_at", "arrival", "time", "arrival_timestamp"),
    "input": ("contexttokens", "input_length", "input_tokens", "prompt_tokens", "num_prefill_tokens", "request tokens"),
    "output": (
        "generatedtokens",
        "output_length",
        "output_tokens",
        "completion_tokens",
        "num_decode_tokens",
        "response tokens",
        "output_len",
    ),
}
"""Columns of traces, in lower case: those of Azure, Mooncake, BurstGPT, Vidur and plain ones."""


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request: what is asked, and how long the answer is to be."""

    prompt: list[int] | str
    output_tokens: int

    @property
    def input_tokens(self) -> int:
        """Tokens of the prompt; a guess for text, until the server has counted them."""
        return len(self.prompt) if isinstance(self.prompt, list) else math.ceil(len(self.prompt) / CHARACTERS)


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One line of a trace."""

    time_s: float
    input_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()  # parts of the prompt that are equal where their numbers are


class _Even:
    """Pairs of numbers between 0 and 1, of which any few in a row have nearly the mean of all.

    Additive sequences with irrational steps and a random beginning. With independent draws the work in a few hundred requests would
    differ by percents from draw to draw.
    """

    def __init__(self, random: np.random.Generator) -> None:
        self._at = random.random(2)

    def draw(self) -> tuple[float, float]:
        self._at = (self._at + STEPS) % 1.0
        return float(self._at[0]), float(self._at[1])


class RequestSource:
    """The requests of a load.

    Args:
        load: What is wanted.
        vocab_size: Tokens the model knows.
        seed: Root of all random numbers.
        text: What prompts are cut from, where they are not random tokens.

    Raises:
        ConfigError: the file cannot be used.
    """

    def __init__(self, load: Load, vocab_size: int, seed: int, text: PromptText | None = None) -> None:
        self.load = load
        self._text = text
        self._seed = seed
        self._low, self._high = (int(share * vocab_size) for share in USUAL)
        self._talks, self.rows = read_files(load, Path(load.file))

    @property
    def turns(self) -> int:
        """Requests of one session, which follow one another."""
        return self.load.turns if self.load.workload == "multi_turn" else 1

    def times_s(self) -> list[float]:
        """When the requests of a trace arrive, from 0."""
        return [row.time_s - self.rows[0].time_s for row in self.rows]

    def sessions(self, name: str) -> Iterator[list[PlannedRequest]]:
        """Requests without end, in sessions of one or more; the same for the same name."""
        tokens = seeds.stream(self._seed, "prompts", name)
        lengths = _Even(seeds.stream(self._seed, "lengths"))
        prefix = self._tokens(tokens, self.load.prefix_tokens)
        for number in count():
            if self.load.workload == "multi_turn":
                yield self._conversation(tokens, lengths, prefix)
            elif self.load.workload == "sharegpt":
                yield [self._talk(lengths, name, number)]
            elif self.load.workload == "trace":
                yield [self._replayed(tokens, self.rows[number % len(self.rows)], name)]
            else:
                length, output_tokens = self._lengths(lengths)
                yield [self._request(prefix + self._tokens(tokens, length), output_tokens)]

    def _lengths(self, even: _Even) -> tuple[int, int]:
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

    def _conversation(self, tokens: np.random.Generator, lengths: _Even, prefix: list[Any]) -> list[PlannedRequest]:
        """Each prompt is the one before it, an answer and a new question. The answer is drawn like a prompt, as none is known yet."""
        requests: list[PlannedRequest] = []
        history = prefix
        for _ in range(self.load.turns):
            length, output_tokens = self._lengths(lengths)
            history = history + self._tokens(tokens, length)
            requests.append(self._request(*self._cut(history, output_tokens)))
            history = history + self._tokens(tokens, output_tokens)
        return requests

    def _talk(self, even: _Even, name: str, number: int) -> PlannedRequest:
        """A conversation of the file with a fresh number in front, so that no cache of an earlier measurement holds it."""
        text, output_tokens = self._talks[int(even.draw()[0] * len(self._talks))]
        text = f"{seeds.number(self._seed, 'talk', name, number) % 10**9} {text}"
        if room := self.load.context:  # in tokens, which only the server counts
            output_tokens = min(output_tokens, room // 2)
            text = text.encode()[: LEAST_BYTES * (room - output_tokens)].decode(errors="ignore")
        return PlannedRequest(text, output_tokens)

    def _replayed(self, tokens: np.random.Generator, row: TraceRow, name: str) -> PlannedRequest:
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


def gaps(load: Load, seed: int, rate: float, times_s: Sequence[float] = ()) -> Iterator[float]:
    """Seconds between sessions, without end, that come at `rate` a second on average; the same, scaled, for every rate.

    Args:
        load: How they arrive. A closed loop has no arrivals; where a rate is asked for all the same, they are Poisson.
        seed: Root of the random numbers.
        rate: Sessions a second.
        times_s: Arrivals of a trace, in order; used unless the load says how they arrive.
    """
    if load.arrival == "closed" and len(times_s) > 1 and times_s[-1] > times_s[0]:
        own = np.diff(times_s) * (len(times_s) - 1) / (times_s[-1] - times_s[0]) / rate
        yield from cycle(own.tolist())
    random = seeds.stream(seed, "arrivals")
    shape = {"constant": None, "burst": load.burstiness}.get(load.arrival, 1.0)
    while True:
        yield 1.0 / rate if shape is None else float(random.gamma(shape, 1.0 / shape)) / rate


def read_files(load: Load, path: Path) -> tuple[list[tuple[str, int]], list[TraceRow]]:
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
        entries = [one for _, one in _json_lines(path, text)] if path.suffix == ".jsonl" else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _unusable(path, f"not valid JSON: {error}") from error
    talks = []
    for one in entries[:MOST_ROWS] if isinstance(entries, list) else []:
        messages = (one.get("conversations") or one.get("conversation") or one.get("messages")) if isinstance(one, Mapping) else None
        parts = messages if isinstance(messages, list) else []
        texts = [str(part.get("value") or part.get("content") or "") for part in parts if isinstance(part, Mapping)]
        if len(texts) >= 2 and texts[0].strip() and texts[1].strip():
            talks.append((texts[0], max(1, round(len(texts[1]) / CHARACTERS))))
    if not talks:
        fix = 'Give a list of {"conversations": [{"from": "human", "value": ...}, {"from": "gpt", "value": ...}]}'
        raise _unusable(path, "holds no conversation with a question and an answer", fix)
    return talks


def read_trace(path: Path) -> list[TraceRow]:
    """The requests of a trace, CSV or JSON lines, in the order of their arrival.

    Raises:
        ConfigError: a column is missing, or values are no numbers: all of them at once.
    """
    text = _read(path)
    as_json = text.lstrip().startswith("{")
    table = _json_lines(path, text) if as_json else _csv_lines(path, text)
    if not table or not all(isinstance(row, Mapping) for _, row in table):
        raise _unusable(path, "holds no requests")
    first = table[0][1]
    names = {str(name).strip().lower(): name for name in first}
    columns = {kind: names[name] for kind, known in _COLUMNS.items() for name in reversed(known) if name in names}
    if missing := [kind for kind in _COLUMNS if kind not in columns]:
        rule = f"has no column for the {' and the '.join(missing)} of a request; found {', '.join(map(str, first))}"
        raise _unusable(path, rule, "Name them timestamp, input_tokens and output_tokens")
    unit_s = 0.001 if as_json and "hash_ids" in first else 1.0  # Mooncake's times are in milliseconds
    rows, faults = [], []
    for line, row in table:
        values: dict[str, Any] = {"blocks": ()}
        fields = [*columns.items(), *([("blocks", "hash_ids")] if as_json and row.get("hash_ids") else [])]
        for kind, column in fields:
            rule, read = _VALUES[kind]
            try:
                values[kind] = read(row.get(column))
            except (ValueError, TypeError, OverflowError):
                faults.append(Fault(where=f"{path}:{line}", field=str(column), value=shown(row.get(column)), rule=rule))
        if not faults and min(values["input"], values["output"]) > 0 and math.isfinite(values["time"]):  # some traces list failed requests
            rows.append(TraceRow(values["time"] * unit_s, values["input"], values["output"], values["blocks"]))
    refuse_if(faults)
    if not rows:
        raise _unusable(path, "holds no request with a prompt and an answer")
    return sorted(rows, key=lambda row: row.time_s)


def _json_lines(path: Path, text: str) -> list[tuple[int, Any]]:
    """The values of a file with one on each line, with the numbers of their lines."""
    rows, faults = [], []
    for number, line in enumerate(text.splitlines()[:MOST_ROWS], start=1):
        try:
            rows += [(number, json.loads(line))] if line.strip() else []
        except (ValueError, RecursionError) as error:
            faults.append(Fault(where=f"{path}:{number}", rule=f"not valid JSON: {error}", fix="Write one object a line"))
    refuse_if(faults)
    return rows


def _csv_lines(path: Path, text: str) -> list[tuple[int, Any]]:
    """The rows of a table, with the numbers of their lines."""
    reader = csv.DictReader(text.splitlines()[: MOST_ROWS + 1])
    try:
        return [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise _unusable(path, f"cannot be read: {error}") from error


def _time_s(value: Any) -> float:
    """Seconds of a number, or of a date such as `2023-11-16 18:15:46.6805900`."""
    try:
        return float(value)
    except ValueError:
        whole, dot, fraction = str(value).strip().rstrip("Z").partition(".")
        digits = "".join(letter for letter in fraction[:9] if letter.isdigit())
        return datetime.fromisoformat(whole).timestamp() + (float(f"0.{digits}") if dot and digits else 0.0)


def _tokens(value: Any) -> int:
    return int(float(value))


_VALUES: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "time": ("must be seconds or a date such as 2023-11-16 18:15:46.68", _time_s),
    "input": ("must be a number of tokens", _tokens),
    "output": ("must be a number of tokens", _tokens),
    "blocks": ("must be a list of whole numbers", lambda value: tuple(map(int, value))),
}
"""What the values of a trace must be, and how they are read."""


def _read(path: Path) -> str:
    try:
        return path.expanduser().read_text(encoding="utf-8-sig")
    except OSError as error:
        raise _unusable(path, f"cannot be read: {error.strerror or error}", "Check the path") from error
    except UnicodeDecodeError as error:
        raise _unusable(path, f"is not UTF-8 text: {error.reason} at byte {error.start:,}") from error


def _unusable(path: Path, rule: str, fix: str = "") -> ConfigError:
    return ConfigError(Fault(where=str(path), rule=rule, fix=fix))
