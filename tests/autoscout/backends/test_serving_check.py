"""The check of a server's answers: what is far from the reference, and what no healthy model says."""

from __future__ import annotations

from typing import Any

import pytest

from autoscout.load.check import WrongAnswer, distance, judge, sane
from autoscout.load.plan import Check


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
        judge(Check(), found)
    unsure = distance([spoken("a", -7.62, {"b": -7.63})], [spoken("x", -7.62)])
    judge(Check(), unsure)


def test_bounds() -> None:
    judge(Check(), {"token_agreement": 0.1, "mean_logprob_error": 0.1})
    with pytest.raises(WrongAnswer, match="are the default's"):
        judge(Check(min_token_agreement=0.5), {"token_agreement": 0.1, "mean_logprob_error": 0.1})


def test_one_token_to_everything() -> None:
    same, other = [spoken("aaa"), spoken("aaa")], [spoken("abc"), spoken("aaa")]
    unsure = [spoken("aaa", -7.6)]
    with pytest.raises(WrongAnswer, match="the same token"):
        sane(same, None)
    with pytest.raises(WrongAnswer, match="the same token"):
        sane(unsure, other)
    sane(unsure, None)  # random weights
    sane(same, same)
    sane(other, None)
