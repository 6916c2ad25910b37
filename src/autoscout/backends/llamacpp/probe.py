"""Whether a configuration still gives the model's answers: next-token probabilities compared with those of the default settings.

Kullback-Leibler divergence over fixed prompts, in nats per token, is what llama.cpp's own quantisation studies report: about 0.0001 for
the rounding of another kernel, 0.001 for q8_0, 0.01 to 0.05 for 4 bits on a trained model, above 1 for garbage.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from autoscout.backends.llamacpp.load import Refused, WrongAnswer
from autoscout.core import seeds

PROMPTS = 6
LENGTH = 24
SEEN = 40  # most probable tokens asked for
SEED = 20240117  # the same prompts in every study: answers are compared across trials

Distribution = dict[str, float]
"""Token number (as text, for JSON) -> log-probability."""


class Answers(Protocol):
    """What is needed of a server."""

    def complete(self, request: Mapping[str, Any]) -> Any: ...


def probe(server: Answers, tokens: np.ndarray[Any, np.dtype[np.int64]], context: int) -> list[Distribution]:
    """What the server thinks comes next, after a few fixed prompts.

    Raises:
        Refused, WrongAnswer: there was no such answer.
    """
    length = min(LENGTH, context - 2)
    found = []
    for number in range(PROMPTS):
        prompt = seeds.stream(SEED, "probe", number).choice(tokens, length).tolist()
        request = {"prompt": prompt, "max_tokens": 1, "temperature": 0.0, "logprobs": SEEN, "cache_prompt": False, "ignore_eos": True}
        answer = server.complete(request)
        found.append(_distribution(answer))
    return found


def _distribution(answer: Any) -> Distribution:
    error = answer.get("error") if isinstance(answer, Mapping) else None
    if error or not isinstance(answer, Mapping) or "choices" not in answer:
        shown = error or answer
        raise Refused(int(error.get("code", 500)) if error else 500, str(error.get("message", error)) if error else json.dumps(shown)[:200])
    try:
        top = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        found = {str(item["id"]): float(item["logprob"]) for item in top}
    except (KeyError, IndexError, TypeError, ValueError) as fault:
        raise WrongAnswer("the model gave no probabilities for the next token") from fault
    if not found or not all(math.isfinite(value) for value in found.values()):
        raise WrongAnswer("the model's probabilities are not numbers")
    return found


def divergence(reference: Sequence[Distribution], seen: Sequence[Distribution]) -> float:
    """Mean KL divergence of `seen` from `reference`, in nats; all but the most probable tokens count as one token."""
    if len(reference) != len(seen) or not reference:
        return math.inf
    return sum(_kl(one, other) for one, other in zip(reference, seen, strict=True)) / len(reference)


def _kl(reference: Distribution, seen: Distribution) -> float:
    least = min(seen.values())
    total, mass, other_mass = 0.0, 0.0, 0.0
    for token, log_probability in reference.items():
        other = seen.get(token, least)  # not among its most probable ones: at most as probable as the last of them
        probability = math.exp(log_probability)
        total += probability * (log_probability - other)
        mass += probability
        other_mass += math.exp(other)
    rest, other_rest = max(1e-9, 1.0 - mass), max(1e-9, 1.0 - other_mass)
    return max(0.0, total + rest * math.log(rest / other_rest))
