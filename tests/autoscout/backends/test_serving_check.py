"""The check of a server's answers: what is far from the reference, and what no healthy model says."""

from __future__ import annotations

from typing import Any

import pytest

from autoscout.load.check import WrongAnswer, distance, divergence, judge, read_answer, refuse_constant
from autoscout.load.plan import AnswerCheck


def spoken(tokens: str, logprob: float = -0.5, top: dict[str, float] | None = None) -> dict[str, Any]:
    return {"tokens": list(tokens), "logprobs": [logprob] * len(tokens), "top": [top or {} for _ in tokens]}


def test_equal_answers() -> None:
    assert distance([spoken("abc")], [spoken("abc")]) == {"token_agreement": 1.0, "mean_logprob_error": 0.0}


def test_what_follows_a_difference_is_not_compared() -> None:
    found = distance([spoken("abcd", top={"x": -0.9})], [spoken("axcd", -0.6)])
    assert found["token_agreement"] == 0.5  # a is the same, x is not; c and d follow other tokens
    assert found["mean_logprob_error"] == pytest.approx((0.1 + 0.3) / 2)


def test_a_token_that_the_reference_does_not_know() -> None:
    """It is there at most as probable as the least probable one that is known."""
    found = distance([spoken("a", -0.1, {"b": -9.0})], [spoken("x", -0.2)])
    assert found == {"token_agreement": 0.0, "mean_logprob_error": pytest.approx(8.8)}
    with pytest.raises(WrongAnswer, match="differ from the default's"):
        judge(AnswerCheck(), found)
    unsure = distance([spoken("a", -7.62, {"b": -7.63})], [spoken("x", -7.62)])
    judge(AnswerCheck(), unsure)


def test_bounds() -> None:
    judge(AnswerCheck(), {"token_agreement": 0.1, "mean_logprob_error": 0.1})
    with pytest.raises(WrongAnswer, match="are the default's"):
        judge(AnswerCheck(min_token_agreement=0.5), {"token_agreement": 0.1, "mean_logprob_error": 0.1})


def test_one_token_to_everything() -> None:
    same, other = [spoken("aaa"), spoken("aaa")], [spoken("abc"), spoken("aaa")]
    unsure = [spoken("aaa", -7.6)]
    with pytest.raises(WrongAnswer, match="the same token"):
        refuse_constant(same, None)
    with pytest.raises(WrongAnswer, match="the same token"):
        refuse_constant(unsure, other)
    refuse_constant(unsure, None)  # random weights
    refuse_constant(same, same)
    refuse_constant(other, None)


def test_divergence_by_hand() -> None:
    half = {"1": -0.6931471805599453, "2": -0.6931471805599453}
    assert divergence(half, half) == pytest.approx(0.0, abs=1e-6)
    # p = (1/2, 1/2), q = (1/4, 3/4): 0.5 ln 2 + 0.5 ln(2/3)
    skew = {"1": -1.3862943611198906, "2": -0.2876820724517809}
    assert divergence(half, skew) == pytest.approx(0.14384103622589045, rel=1e-6)
    assert divergence(half, {"8": -0.01, "9": -9.0}) > 1.0, "other words altogether"
    one, other = spoken("1", half["1"], half), spoken("2", skew["2"], skew)
    assert distance([one, one], [other, one])["divergence"] == pytest.approx(0.0719205, rel=1e-4), "the mean over prompts"
    assert "divergence" not in distance([spoken("a")], [spoken("a")]), "the server gave no other tokens"


def test_a_bound_on_divergence() -> None:
    judge(AnswerCheck(), {"divergence": 9.0})
    judge(AnswerCheck(max_divergence=0.05, max_logprob_error=0.0), {"divergence": 0.01, "mean_logprob_error": 9.0})
    with pytest.raises(WrongAnswer, match=r"by 0\.06 nats a token, more than 0\.05"):
        judge(AnswerCheck(max_divergence=0.05), {"divergence": 0.06})


def llama_cpp(logprob: float | None, text: str = " a") -> dict[str, Any]:
    top = [{"id": 7, "token": " a", "logprob": logprob}, {"id": 9, "token": " b", "logprob": -2.0}]
    rows = [{"id": 7, "token": " a", "logprob": logprob, "top_logprobs": top}]
    return {"choices": [{"text": text, "logprobs": {"content": rows}}], "usage": {"completion_tokens": 1}}


def test_log_probabilities_in_the_form_of_chats() -> None:
    check = AnswerCheck(output_tokens=1, readable=True)
    assert read_answer(llama_cpp(-0.5), check) == {"text": " a", "tokens": ["7"], "logprobs": [-0.5], "top": [{"7": -0.5, "9": -2.0}]}
    with pytest.raises(WrongAnswer, match="not numbers"):
        read_answer(llama_cpp(None), check)
    with pytest.raises(WrongAnswer, match="no readable text"):
        read_answer(llama_cpp(-0.5, text="\ufffd "), check)
    with pytest.raises(WrongAnswer, match="log-probabilities of 0"):
        read_answer({"choices": [{"text": "a", "logprobs": None}], "usage": {"completion_tokens": 1}}, check)
