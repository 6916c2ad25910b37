"""Guessing tokens ahead, as far as the stand-in has it: how many guesses are right, what checking them costs, and the counters."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

CHANCE = {"mtp": 0.8, "eagle": 0.7, "eagle3": 0.75, "nextn": 0.8, "draft_model": 0.7, "standalone": 0.7, "ngram": 0.5, "suffix": 0.55}
"""Method -> the share of guesses that are right after a right one, where the prompt is text."""
NOISE = 0.05  # the same after a prompt of random tokens, which nothing can be guessed from
CHECKED = 0.5  # cost of checking a guess, in tokens that are computed
TEXT = 0.5  # share of a prompt that must be known words for it to be text


@dataclass
class Speculation:
    """The kind of guessing, and what it came to.

    Attributes:
        method: As the engines name it, in small letters; empty for none.
        guesses: Tokens guessed in one step.
    """

    method: str = ""
    guesses: int = 0
    drafts: int = 0
    accepted: int = 0
    words: set[int] = field(default_factory=set)  # tokens that came from text

    def is_text(self, prompt: Sequence[int]) -> bool:
        """Whether most of a prompt is words that the server has seen in text."""
        return sum(token in self.words for token in prompt) > TEXT * len(prompt)

    def right(self, root: int, number: int, *, text: bool) -> int:
        """Guesses that hold in the step after token `number` of an answer; counted. The same for the same answer."""
        if not self.guesses:
            return 0
        chance = CHANCE.get(self.method, NOISE) if text else NOISE
        right = 0
        while right < self.guesses and _share(root, number + right) < chance:
            right += 1
        self.drafts += 1
        self.accepted += right
        return right

    @property
    def tokens(self) -> float:
        """What a step of one answer costs, in tokens that are computed."""
        return 1 + CHECKED * self.guesses

    def metrics(self) -> dict[str, float]:
        """As vLLM and SGLang count; nothing without guessing."""
        if not self.guesses:
            return {}
        return {
            "vllm:spec_decode_num_drafts_total": self.drafts,
            "vllm:spec_decode_num_draft_tokens_total": self.drafts * self.guesses,
            "vllm:spec_decode_num_accepted_tokens_total": self.accepted,
            "sglang:spec_verify_calls_total": self.drafts,
            "sglang:spec_num_draft_tokens": self.guesses + 1,
        }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The engines' flags for it."""
    parser.add_argument("--speculative-config", "-sc", type=json.loads, default={})
    parser.add_argument("--speculative-algorithm", default="")
    parser.add_argument("--speculative-num-draft-tokens", type=int, default=0)
    parser.add_argument("--speculative-num-steps", type=int, default=0)


def of(options: argparse.Namespace) -> Speculation:
    """What a command line asks for."""
    if options.speculative_config:
        return Speculation(str(options.speculative_config["method"]), int(options.speculative_config["num_speculative_tokens"]))
    if options.speculative_algorithm:
        guesses = options.speculative_num_steps or max(1, options.speculative_num_draft_tokens - 1)
        return Speculation(options.speculative_algorithm.lower(), guesses)
    return Speculation()


def _share(root: int, number: int) -> float:
    """A number between 0 and 1 that looks random."""
    value = (root * 2654435761 + (number + 1) * 2246822519) & 0xFFFFFFFF
    value = ((value ^ (value >> 15)) * 2246822519) & 0xFFFFFFFF
    value = ((value ^ (value >> 13)) * 3266489917) & 0xFFFFFFFF
    return (value ^ (value >> 16)) / 2**32


__all__ = ["Speculation", "add_arguments", "of"]
