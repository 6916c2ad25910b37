"""Whether a configuration still gives the model's answers, on a few fixed prompts.

Always: as many tokens as asked for, probabilities that are numbers, and not the same token to everything. Where there is a reference,
also how far the answers are from the default's: greedy decoding is compared token by token up to the first difference, because what
follows a different token cannot be compared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from autoscout.core import seeds
from autoscout.load.client import Broken, Client
from autoscout.load.plan import Check
from autoscout.load.workload import USUAL

SEED = 20240117  # the same prompts in every study: answers are compared across trials
SURE = -3.0  # mean log-probability above which a model means what it says; random weights are at minus the logarithm of the vocabulary
TOP = 10  # log-probabilities asked for: a token that the reference found second or third can still be compared


class WrongAnswer(Exception):  # noqa: N818 - a result
    """The server answered, but not what a healthy model does."""


Spoken = dict[str, Any]
"""An answer: `tokens`, their `logprobs`, and the `top` tokens of each with theirs."""


async def speak(client: Client, check: Check, vocab_size: int) -> list[Spoken]:
    """What the server answers to the fixed prompts.

    Raises:
        WrongAnswer: no healthy model answers so.
        Broken: the server refused, or broke.
    """
    low, high = (int(share * vocab_size) for share in USUAL)
    found = []
    for number in range(check.prompts):
        prompt = seeds.stream(SEED, "check", number).integers(low, high, check.input_tokens).tolist()
        asked = {
            "prompt": prompt,
            "max_tokens": check.output_tokens,
            "temperature": 0.0,
            "ignore_eos": True,
            **({"logprobs": TOP, "return_tokens_as_token_ids": True} if check.logprobs else {}),
        }
        try:
            answer = await client.post(asked)
        except Broken as error:
            if "not JSON compliant" in str(error):  # how an engine's web server says that a probability is not a number
                raise WrongAnswer("the model's probabilities are not numbers") from error
            raise
        found.append(_spoken(answer, check))
    return found


def _spoken(answer: Any, check: Check) -> Spoken:
    try:
        choice, made = answer["choices"][0], int(answer["usage"]["completion_tokens"])
        block = choice.get("logprobs") or {}
        tokens, logprobs = list(block.get("tokens") or ()), list(block.get("token_logprobs") or ())
        top = list(block.get("top_logprobs") or ())
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as fault:
        raise WrongAnswer(f"the server's answer lacks {fault}") from fault
    if made != check.output_tokens:
        raise WrongAnswer(f"asked for {check.output_tokens} tokens, got {made}")
    if check.logprobs and (len(tokens) != made or len(logprobs) != made):
        raise WrongAnswer(f"{made} tokens, but log-probabilities of {len(logprobs)}")
    if not all(isinstance(value, (int, float)) and math.isfinite(value) for value in logprobs):
        raise WrongAnswer("the model's probabilities are not numbers")
    return {"text": str(choice.get("text") or ""), "tokens": tokens, "logprobs": logprobs, "top": top}


def sane(spoken: Sequence[Mapping[str, Any]], reference: Sequence[Mapping[str, Any]] | None) -> None:
    """Raise `WrongAnswer` for the same token to everything.

    A model with random weights does that too, without being sure of it; so it is wrong only where the reference does not, or, where
    there is none, where the token is said to be likely.
    """
    said = {token for one in spoken for token in one["tokens"]}
    if len(said) != 1 or sum(len(one["tokens"]) for one in spoken) < 3:
        return
    values = [value for one in spoken for value in one["logprobs"]]
    usual = reference and len({token for one in reference for token in one["tokens"]}) == 1
    if not usual and (reference or sum(values) / max(1, len(values)) > SURE):
        raise WrongAnswer(f"the same token {said.pop()!r} to all prompts")


def distance(reference: Sequence[Mapping[str, Any]], spoken: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """How far answers are from the reference's.

    `token_agreement` is the share of tokens that are the reference's among those that follow the same tokens; `mean_logprob_error` is the
    mean absolute difference of the log-probabilities of these tokens, in nats.
    """
    same = compared = 0
    errors: list[float] = []
    for one, other in zip(reference, spoken, strict=False):
        for at, (token, own) in enumerate(zip(one["tokens"], other["tokens"], strict=False)):
            compared += 1
            errors.append(_error(one, at, own, other["logprobs"][at]))
            if token != own:
                break
            same += 1
    if not compared:
        return {}
    return {"token_agreement": same / compared, "mean_logprob_error": sum(errors) / len(errors)}


def _error(reference: Mapping[str, Any], at: int, token: str, value: float) -> float:
    """How far the log-probability of a token is from the reference's, or at least is.

    A token that is not among the most probable ones of the reference is there at most as probable as the last of them.
    """
    known: dict[str, float] = dict((reference["top"][at] if at < len(reference["top"]) else None) or {})
    known[reference["tokens"][at]] = reference["logprobs"][at]
    return abs(known[token] - value) if token in known else max(0.0, value - min(known.values()))


def judge(check: Check, metrics: Mapping[str, float]) -> None:
    """Raise `WrongAnswer` where the distance is too great."""
    agreement, error = metrics.get("token_agreement"), metrics.get("mean_logprob_error")
    if agreement is not None and agreement < check.min_token_agreement:
        raise WrongAnswer(f"{agreement:.1%} of the tokens are the default's, fewer than {check.min_token_agreement:.1%}")
    if error is not None and not error <= check.max_logprob_error:
        raise WrongAnswer(f"log-probabilities differ from the default's by {error:.3g} nats, more than {check.max_logprob_error:g}")
