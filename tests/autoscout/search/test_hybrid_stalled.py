from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from autoscout.core.config import Config
from autoscout.core.origin import Origin
from autoscout.core.trial import Measurement, Proposal, Status, Trial
from autoscout.learning.answers import Answer
from autoscout.search.hybrid import HybridSearcher, tuning
from autoscout.search.hybrid.proposers.stalled import fruitless, seldom_tried
from autoscout.space import Choice, Grid, Space
from autoscout.testing.searcher import TASK

SPACE = Space([Choice("way", ["known", "other", "third"]), Grid("x", 1, 12, default=6), Grid("y", 1, 12, default=6)])


def answer(loss: float, number: int | None, *, measured: bool = True) -> Answer:
    config = Config({"x": number or 0, "loss": str(loss)})
    return Answer(config, loss, Origin(), (-1 if number is None else number, 0, config.key), measured=measured)


def later(count: int, loss: float = 2.0) -> list[Answer]:
    return [answer(loss, 20 + number) for number in range(count)]


def test_answers_after_the_best_are_counted() -> None:
    best = answer(1.0, 7)
    assert fruitless([best, *later(5)]) == 5
    assert fruitless([*later(5)[::-1], best]) == 5, "in any order"
    assert fruitless([best, *later(5, loss=1.0)]) == 5, "as good is not better"
    assert fruitless([best, *later(5, loss=math.inf)]) == 5, "nor is a failure"
    assert fruitless([answer(1.5, 7), *later(5), answer(1.0, 99)]) == 0
    assert fruitless([answer(1.0, None), *later(5)]) == 5, "what the search did not ask for was there from the start"
    assert fruitless([answer(1.0, None), *[answer(2.0, None)] * 5]) == 0
    assert fruitless([]) == 0
    assert fruitless(later(5, loss=math.inf)) == 0, "nothing worked yet"


def test_what_was_simulated_is_not_the_best_of_what_was_measured() -> None:
    simulated = answer(0.5, 1, measured=False)
    assert fruitless([simulated, *later(5), answer(1.0, 99)]) == 0
    assert fruitless([answer(1.0, 7), *later(5), answer(0.5, 99, measured=False)]) == 6


def test_a_share_falls_with_the_trials_of_a_structure() -> None:
    def shares(tried: list[list[int]], sparse: list[bool]) -> list[float] | None:
        codes = np.array([[0, 1, 9], [0, 2, 9], [1, 1, 9]])
        found = seldom_tried(codes, np.array(tried, dtype=np.int64).reshape(-1, 3), np.array(sparse))
        return None if found is None else found.tolist()

    tried = [[0, 1, 5], [0, 1, 6], [0, 2, 5]]
    assert shares(tried, [True, True, False]) == [1 / 3, 1 / 2, 1.0]
    assert shares(tried, [True, False, False]) == [1 / 4, 1 / 4, 1.0]
    assert shares([], [True, True, True]) == [1.0] * 3
    assert shares(tried, [False, False, True]) is None, "all candidates are of one structure"
    assert shares(tried, [False, False, False]) is None


def smooth(config: Config) -> float:
    """Nothing that a model would not know after some trials."""
    x, y = float(config["x"]), float(config["y"])  # type: ignore[arg-type]
    return (1.0 if config["way"] == "known" else 1.5) + 0.01 * ((x - 4) ** 2 + (y - 5) ** 2)


def proposer(proposal: Proposal) -> object:
    return proposal.origin.notes["proposer"]


def tries(loss: Callable[[Config], float], steps: int = 60) -> list[Proposal]:
    searcher, made = HybridSearcher(SPACE, TASK, seed=1), []
    while len(made) < steps:
        proposal = searcher.ask(1)[0]
        made.append(proposal)
        searcher.tell([Trial(proposal=proposal, measurement=Measurement(status=Status.OK, metrics={"time_s": loss(proposal.config)}))])
    return made


def test_neighbours_of_the_best_come_first_when_the_model_expects_nothing() -> None:
    late = [proposer(proposal) for proposal in tries(smooth, steps=60)[30:]]
    assert late.count("exhausted") > 20


def test_every_third_step_is_given_away_while_the_model_expects_something(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "MIN_GAIN", 0.0)
    late = [proposer(proposal) for proposal in tries(smooth, steps=60)[40:]]
    assert late.count("stalled") in (6, 7)
    assert late.count("acquisition") == len(late) - late.count("stalled")


MANY = Space([Choice("way", list("abcdefgh")), Grid("x", 1, 40, default=20)])


def test_looks_go_to_what_was_seldom_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "MIN_GAIN", 0.0)
    searcher = HybridSearcher(MANY, TASK, seed=3)
    known = [Config({"way": way, "x": x}) for way in "abcdef" for x in range(1, 41, 2 if way == "a" else 13)]
    for number, config in enumerate(known):
        seconds = 1.0 + 0.2 * math.sin(37 * number) if config["way"] == "a" else 1.5
        proposal = Proposal(config=config, origin=Origin(by="hybrid", notes={"round": number}))
        searcher.tell([Trial(proposal=proposal, measurement=Measurement(status=Status.OK, metrics={"time_s": seconds}))])
    looks = [proposal.config["way"] for proposal in searcher.ask(12) if proposer(proposal) == "stalled"]
    assert {"g", "h"} & set(looks), "those that had no trial"


def test_no_look_goes_where_the_only_trial_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "MIN_GAIN", 0.0)
    searcher = HybridSearcher(MANY, TASK, seed=3)
    known = [Config({"way": way, "x": x}) for way in "abcdef" for x in range(1, 41, 2 if way == "a" else 13)]
    for number, config in enumerate([*known, Config({"way": "g", "x": 20}), Config({"way": "h", "x": 20})]):
        seconds = 1.0 + 0.2 * math.sin(37 * number) if config["way"] == "a" else 1.5
        worked, failed = Measurement(status=Status.OK, metrics={"time_s": seconds}), Measurement(status=Status.CRASHED, reason="no room")
        proposal = Proposal(config=config, origin=Origin(by="hybrid", notes={"round": number}))
        searcher.tell([Trial(proposal=proposal, measurement=failed if config["way"] in "gh" else worked)])
    looks = [proposal.config["way"] for proposal in searcher.ask(12) if proposer(proposal) == "stalled"]
    assert len(looks) >= 2
    assert not {"g", "h"} & set(looks)
