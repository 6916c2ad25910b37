from __future__ import annotations

import math

import numpy as np

from autoscout.core.config import Config
from autoscout.core.trial import Measurement, Proposal, Status, Trial
from autoscout.search.hybrid import HybridSearcher
from autoscout.search.hybrid.elsewhere import STALLED, TURNS, looks_elsewhere, seldom_tried
from autoscout.search.hybrid.ledger import Answer
from autoscout.search.hybrid.options import HybridOptions
from autoscout.space import Choice, Grid, Space
from autoscout.testing.searcher import TASK

SPACE = Space([Choice("way", ["known", "other", "third"]), Grid("x", 1, 12, default=6), Grid("y", 1, 12, default=6)])


def answer(loss: float, number: int | None) -> Answer:
    config = Config({"x": number or 0})
    return Answer(config, config.key, loss, None, {} if number is None else {"round": number}, measured=True)


def test_it_takes_some_steps_without_a_better_one() -> None:
    step = STALLED + 5 - (STALLED + 5) % TURNS
    assert looks_elsewhere([answer(1.0, step - STALLED), answer(2.0, step - 1)], step)
    assert not looks_elsewhere([answer(1.0, step - STALLED), answer(2.0, step - 1)], step + 1), "not at every step"
    assert not looks_elsewhere([answer(1.0, step - 2), answer(2.0, 1)], step), "the best is young"
    assert looks_elsewhere([answer(1.0, None), answer(2.0, step - 1)], step), "what the search did not ask for was there from the start"
    assert not looks_elsewhere([], step)
    assert not looks_elsewhere([answer(math.inf, 1)], step), "nothing worked yet"


def test_a_share_falls_with_the_trials_of_a_structure() -> None:
    known = np.array([[0, 1, 5], [0, 1, 6], [0, 2, 5]])
    codes = np.array([[0, 1, 9], [0, 2, 9], [1, 1, 9]])
    assert seldom_tried(codes, known, np.array([True, True, False])).tolist() == [1 / 3, 1 / 2, 1.0]
    assert seldom_tried(codes, known, np.array([True, False, False])).tolist() == [1 / 4, 1 / 4, 1.0]
    assert seldom_tried(codes, known, np.zeros(3, dtype=bool)).tolist() == [1 / 4] * 3, "all are of one structure"
    assert seldom_tried(codes, known[:0], np.ones(3, dtype=bool)).tolist() == [1.0] * 3


def loss(config: Config) -> float:
    """Good everywhere in the known way, so rugged that a model always hopes for more; in the others bad, but for a corner."""
    x, y = float(config["x"]), float(config["y"])  # type: ignore[arg-type]
    if config["way"] == "known":
        return 1.0 + 0.2 * math.sin(37 * x) * math.sin(53 * y)
    return 0.5 if config["way"] == "other" and x >= 10 and y >= 10 else 2.0 + 0.1 * x


def tries(options: HybridOptions, steps: int = 60) -> list[Proposal]:
    searcher, made = HybridSearcher(SPACE, TASK, seed=1, options=options), []
    while len(made) < steps:
        proposal = searcher.ask(1)[0]
        made.append(proposal)
        searcher.tell([Trial(proposal=proposal, measurement=Measurement(status=Status.OK, metrics={"time_s": loss(proposal.config)}))])
    return made


def test_a_structure_that_looked_bad_gets_another_chance() -> None:
    with_it, without = tries(HybridOptions()), tries(HybridOptions(elsewhere=False))
    looks = [proposal for proposal in with_it if proposal.origin.get("arm") == "elsewhere"]
    assert looks
    assert not any(proposal.origin.get("arm") == "elsewhere" for proposal in without)
    assert np.mean([proposal.config["way"] != "known" for proposal in looks]) > 0.5
    tried = [sum(proposal.config["way"] != "known" for proposal in made) for made in (with_it, without)]
    assert tried[0] > tried[1]
