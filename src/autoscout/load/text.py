"""Text that prompts are cut from: English prose and Python code that come with AutoScout, or a file of the user's own.

What a server guesses ahead of random tokens is wrong, so speculative decoding is measured on text. The server's own tokenizer turns it
into tokens once, before the load; prompts are then cut from them to any length, so that lengths are the same as with random tokens.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from autoscout.core.errors import ConfigError, Fault
from autoscout.load.client import Client, RequestFailed
from autoscout.load.plan import MIXED, NONE

SHIPPED = {"prose": ("prose",), "code": ("code",), MIXED: ("prose", "code")}
"""Name of a text -> the files it is made of."""
PIECE = 2000  # characters that the server turns into tokens at once; more might not fit the longest request
LEAD = 4  # words that each prompt begins with, drawn from all of the text, so that no cache knows its beginning
TASKS = (
    "\n\nThe same once more, with every mistake corrected:\n\n",
    "\n\nA summary of the above in a few sentences:\n\n",
    "\n\nWhat the above does, explained step by step for a beginner:\n\n",
    "\n\nThe text continues as follows:\n\n",
)
"""Ends of prompts: answers that repeat the prompt, and answers that do not."""
ENDED = 64  # tokens that a prompt has at least, for such an end
MOST_BYTES = 50_000_000  # of a file that is read
Unit = int | str


def title(name: str) -> str:
    """What a text is, for people; empty for random tokens."""
    words = {"": "", "prose": "English prose", "code": "Python code", MIXED: "English prose and Python code"}
    return words.get(name, f"the text of {Path(name).name}")


def read_text(name: str) -> str:
    """The text of that name, or of that file.

    Raises:
        ConfigError: there is no such file, or no text in it.
    """
    if name in SHIPPED:
        home = files("autoscout.load").joinpath("texts")
        return "\n\n".join(gzip.decompress(home.joinpath(f"{part}.txt.gz").read_bytes()).decode() for part in SHIPPED[name])
    try:
        with Path(name).expanduser().open("rb") as file:
            text = file.read(MOST_BYTES).decode("utf-8-sig", errors="strict")
    except (OSError, ValueError) as error:
        fix = f"Give a file of UTF-8 text, or one of {', '.join((*SHIPPED, NONE))}"
        raise ConfigError(Fault(where="workload", field="text", value=repr(name), rule=f"cannot be read: {error}", fix=fix)) from error
    if len(text.split()) < LEAD:
        raise ConfigError(Fault(where="workload", field="text", value=repr(name), rule="holds no text"))
    return text


def text_path(name: str) -> str:
    """The name of a text; a file by its absolute path, because trials run in folders of their own."""
    return name if name in ("", NONE) or name in SHIPPED else str(Path(name).expanduser().absolute())


class PromptText:
    """Cuts prompts from a text.

    Args:
        units: Its tokens, or for a server that takes words the words of each token.
        ends: The units of `TASKS`.
    """

    def __init__(self, units: Sequence[Unit], ends: Sequence[Sequence[Unit]] = ()) -> None:
        self._units = list(units)
        self._ends = [list(end) for end in ends]

    def draw(self, random: np.random.Generator, length: int) -> list[Any]:
        """A prompt of exactly this length: a few words that no other prompt begins with, a passage, and a task."""
        size = len(self._units)
        end = self._ends[int(random.integers(len(self._ends)))] if self._ends and length >= ENDED else []
        lead = [self._units[at] for at in random.integers(size, size=min(LEAD, length)).tolist()]
        at, rest = int(random.integers(size)), length - len(lead) - len(end)
        passage = self._units[at : at + rest]
        while len(passage) < rest:
            passage += self._units[: rest - len(passage)]
        return lead + passage + end


async def tokenized(client: Client, path: str, name: str, *, words: bool) -> PromptText:
    """The text as the server's own tokenizer reads it.

    Args:
        client: Of the server.
        path: Where it turns text into tokens.
        name: Of the text.
        words: For an endpoint that takes no tokens: the words of each.

    Raises:
        ConfigError: the text cannot be used, or the server has no tokenizer.
    """
    units: list[Unit] = []
    for piece in pieces(read_text(name)):
        units += await _units(client, path, piece, words=words)
    return PromptText(units, [await _units(client, path, task, words=words) for task in TASKS])


async def _units(client: Client, path: str, text: str, *, words: bool) -> list[Unit]:
    try:
        answer = await client.post({"prompt": text, "content": text, "add_special_tokens": False}, path)
        tokens = [int(token) for token in answer["tokens"]]
    except (RequestFailed, KeyError, TypeError, ValueError) as error:
        why = str(error).removeprefix("status ")  # which would be taken for a refusal of the settings
        rule, fix = f"the server turns no text into tokens: {why}", "Give text: none for random tokens"
        raise ConfigError(Fault(where="workload", field="text", rule=rule, fix=fix)) from error
    return list(even_parts(text, len(tokens))) if words else list(tokens)


def pieces(text: str) -> Iterator[str]:
    """The text in parts of at most `PIECE` characters, cut between lines where that is possible."""
    at = 0
    while at < len(text):
        end = text.rfind("\n", at + 1, at + PIECE) + 1 if at + PIECE < len(text) else len(text)
        end = end if end > at else at + PIECE
        yield text[at:end]
        at = end


def even_parts(text: str, count: int) -> Iterator[str]:
    """The text in `count` parts of nearly the same length; which letters a token stands for is not told."""
    ends = np.linspace(0, len(text), count + 1).astype(int).tolist()
    yield from (text[begin:end] for begin, end in pairwise(ends))


__all__ = ["SHIPPED", "PromptText", "read_text", "text_path", "title", "tokenized"]
