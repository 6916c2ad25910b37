"""Whether a configuration still gives the model's answers, on a few fixed prompts.

Always: as many tokens as asked for, probabilities that are numbers, and not the same token to everything. Where there is a reference,
also how far the answers are from the default's: greedy decoding is compared token by token up to the first difference, because what
follows a different token cannot be compared. Kullback-Leibler divergence in nats per token is what llama.cpp's own quantisation studies
report: about 0.0001 for the rounding of another kernel, 0.001 for q8_0, 0.01 to 0.05 for 4 bits on a trained model, above 1 for garbage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from autoscout.core import seeds
from autoscout.load.client import Client, RequestFailed
from autoscout.load.plan import AnswerCheck
from autoscout.load.workload import USUAL

SEED = 20240117  # the same prompts in every study: answers are compared across trials
SURE = -3.0  # mean log-probability above which a model means what it says; random weights are at minus the logarithm of the vocabulary


class WrongAnswer(Exception):  # noqa: N818 - a result
    """The server answered, but not what a healthy model does."""


CheckedAnswer = dict[str, Any]
"""An answer: `tokens`, their `logprobs`, and the `top` tokens of each with theirs."""


async def ask_fixed_prompts(client: Client, check: AnswerCheck, vocab_size: int) -> list[CheckedAnswer]:
    """What the server answers to the fixed prompts.

    Raises:
        WrongAnswer: no healthy model answers so.
        RequestFailed: the server refused, or broke.
    """
    low, high = (int(share * vocab_size) for share in USUAL)
    answers = []
    for number in range(check.prompts):
        prompt = seeds.stream(SEED, "check", number).integers(low, high, check.input_tokens).tolist()
        request = {
            "prompt": prompt,
            "max_tokens": check.output_tokens,
            "temperature": 0.0,
            "ignore_eos": True,
            **({"logprobs": check.top, "return_tokens_as_token_ids": True} if check.logprobs else {}),
        }
        try:
            answer = await client.post(request)
        except RequestFailed as error:
            if "not JSON compliant" in str(error):  # how an engine's web server says that a probability is not a number
                raise WrongAnswer("the model's probabilities are not numbers") from error
            raise
        answers.append(read_answer(answer, check))
    return answers


def read_answer(answer: Any, check: AnswerCheck) -> CheckedAnswer:
    """What a reply to a fixed prompt says.

    Raises:
        WrongAnswer: no healthy model answers so.
    """
    try:
        choice, produced = answer["choices"][0], int(answer["usage"]["completion_tokens"])
        block, text = choice.get("logprobs") or {}, str(choice.get("text") or "")
        if "content" in block:  # as chat endpoints say it, and llama.cpp everywhere
            rows = list(block["content"] or ())
            block = {
                "tokens": [_token(row) for row in rows],
                "token_logprobs": [row["logprob"] for row in rows],
                "top_logprobs": [{_token(other): other["logprob"] for other in row["top_logprobs"]} for row in rows],
            }
        tokens, logprobs = list(block.get("tokens") or ()), list(block.get("token_logprobs") or ())
        top = list(block.get("top_logprobs") or ())
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as fault:
        raise WrongAnswer(f"the server's answer lacks {fault}") from fault
    if produced != check.output_tokens:
        raise WrongAnswer(f"asked for {check.output_tokens} tokens, got {produced}")
    if check.logprobs and (len(tokens) != produced or len(logprobs) != produced):
        raise WrongAnswer(f"{produced} tokens, but log-probabilities of {len(logprobs)}")
    if not all(isinstance(value, (int, float)) and math.isfinite(value) for value in logprobs):
        raise WrongAnswer("the model's probabilities are not numbers")
    if check.readable and not text.strip("\ufffd \n"):
        raise WrongAnswer(f"{produced} tokens, but no readable text")
    return {"text": text, "tokens": tokens, "logprobs": logprobs, "top": top}


def _token(row: Mapping[str, Any]) -> str:
    return str(row.get("id", row["token"]))


def refuse_constant(answers: Sequence[Mapping[str, Any]], reference: Sequence[Mapping[str, Any]] | None) -> None:
    """Raise `WrongAnswer` for the same token to everything.

    A model with random weights does that too, without being sure of it; so it is wrong only where the reference does not, or, where
    there is none, where the token is said to be likely.
    """
    tokens = {token for one in answers for token in one["tokens"]}
    if len(tokens) != 1 or sum(len(one["tokens"]) for one in answers) < 3:
        return
    values = [value for one in answers for value in one["logprobs"]]
    is_usual = reference and len({token for one in reference for token in one["tokens"]}) == 1
    if not is_usual and (reference or sum(values) / max(1, len(values)) > SURE):
        raise WrongAnswer(f"the same token {tokens.pop()!r} to all prompts")


def distance(reference: Sequence[Mapping[str, Any]], answers: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """How far answers are from the reference's.

    `token_agreement` is the share of tokens that are the reference's among those that follow the same tokens; `mean_logprob_error` is the
    mean absolute difference of the log-probabilities of these tokens, in nats; `divergence` is the mean Kullback-Leibler divergence of the
    distributions they come from, where the server gave the most probable tokens.
    """
    same = 0
    errors: list[float] = []
    divergences: list[float] = []
    for one, other in zip(reference, answers, strict=False):
        for at, (token, own) in enumerate(zip(one["tokens"], other["tokens"], strict=False)):
            errors.append(_error(one, at, own, other["logprobs"][at]))
            theirs, ours = _distribution(one, at), _distribution(other, at)
            divergences += [divergence(theirs, ours)] if len(theirs) > 1 and len(ours) > 1 else []
            if token != own:
                break
            same += 1
    if not errors:
        return {}
    metrics = {"token_agreement": same / len(errors), "mean_logprob_error": sum(errors) / len(errors)}
    return metrics | ({"divergence": sum(divergences) / len(divergences)} if divergences else {})


def _distribution(answer: Mapping[str, Any], at: int) -> dict[str, float]:
    """Log-probabilities of the most probable tokens at one place, and of the one that was chosen."""
    top: Mapping[str, float] = (answer["top"][at] if at < len(answer["top"]) else None) or {}
    return {**top, answer["tokens"][at]: answer["logprobs"][at]}


def divergence(reference: Mapping[str, float], other: Mapping[str, float]) -> float:
    """Kullback-Leibler divergence of `other` from `reference`, in nats; all but the most probable tokens count as one token."""
    least = min(other.values())
    total, mass, other_mass = 0.0, 0.0, 0.0
    for token, logprob in reference.items():
        theirs = other.get(token, least)  # not among its most probable ones: at most as probable as the last of them
        probability = math.exp(logprob)
        total += probability * (logprob - theirs)
        mass += probability
        other_mass += math.exp(theirs)
    rest, other_rest = max(1e-9, 1.0 - mass), max(1e-9, 1.0 - other_mass)
    return max(0.0, total + rest * math.log(rest / other_rest))


def _error(reference: Mapping[str, Any], at: int, token: str, value: float) -> float:
    """How far the log-probability of a token is from the reference's, or at least is.

    A token that is not among the most probable ones of the reference is there at most as probable as the last of them.
    """
    logprobs = _distribution(reference, at)
    return abs(logprobs[token] - value) if token in logprobs else max(0.0, value - min(logprobs.values()))


def judge(check: AnswerCheck, metrics: Mapping[str, float]) -> None:
    """Raise `WrongAnswer` where the distance is too great."""
    agreement, error = metrics.get("token_agreement"), metrics.get("mean_logprob_error")
    if agreement is not None and agreement < check.min_token_agreement:
        raise WrongAnswer(f"{agreement:.1%} of the tokens are the default's, fewer than {check.min_token_agreement:.1%}")
    if error is not None and check.max_logprob_error and not error <= check.max_logprob_error:
        raise WrongAnswer(f"log-probabilities differ from the default's by {error:.3g} nats, more than {check.max_logprob_error:g}")
    nats = metrics.get("divergence")
    if nats is not None and check.max_divergence and not nats <= check.max_divergence:
        raise WrongAnswer(f"answers differ from the default's by {nats:.3g} nats a token, more than {check.max_divergence:g}")
