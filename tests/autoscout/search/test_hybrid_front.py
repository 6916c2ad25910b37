from __future__ import annotations

import numpy as np
import pytest

from autoscout.common.front import comparable, hypervolume, on_front
from autoscout.core.config import Config
from autoscout.core.origin import Origin
from autoscout.core.task import Direction, Goal, Objective, Task
from autoscout.core.trial import Measurement, Status, Trial
from autoscout.learning.answers import Answer
from autoscout.search.hybrid import HybridSearcher
from autoscout.search.hybrid.front import FrontSurrogate, leaders
from autoscout.search.hybrid.surrogate import Surrogate
from autoscout.search.random import RandomSearcher
from autoscout.space import Choice, Grid, Space
from autoscout.space.encode import Encoder

GOALS = Objective(metric="rate", direction=Direction.MAXIMIZE, also=(Goal(metric="late_ms"),))
TASK = Task(system="toy", objective=GOALS)
SPACE = Space([Grid("batch", 1, 12), Grid("a", 0, 9), Grid("b", 0, 9), Choice("mode", ["x", "y", "z"])])


def served(config: Config) -> Measurement:
    """Larger batches give more throughput and more latency; the other knobs are plainly good or bad."""
    batch, a, b = (float(str(config[name])) for name in ("batch", "a", "b"))
    waste = (1.0 + 0.03 * (a - 3.0) ** 2 + 0.02 * (b - 6.0) ** 2) * {"x": 1.0, "y": 0.9, "z": 1.3}[str(config["mode"])]
    return Measurement(status=Status.OK, metrics={"rate": 100.0 * batch**0.7 / waste, "late_ms": 5.0 * (1.0 + batch) * waste})


def answer(number: int, *losses: float) -> Answer:
    config = Config({"batch": 1 + number % 12, "a": number % 10, "b": number // 12, "mode": "x"})
    return Answer(config=config, loss=losses[0], origin=Origin(), age=(number, 0, config.key), losses=losses)


def covered(searcher: HybridSearcher | RandomSearcher, shares: dict[Config, np.ndarray], trials: int) -> float:
    found = []
    for _ in range(trials):
        (proposal,) = searcher.ask(1)
        found.append(shares[proposal.config])
        searcher.tell([Trial(proposal=proposal, measurement=served(proposal.config))])
    return hypervolume(np.array(found), np.full(2, 1.1))


def test_it_covers_more_of_the_front_than_chance() -> None:
    configs = list(SPACE.enumerate())
    shares = dict(zip(configs, comparable(np.array([GOALS.losses(served(config)) for config in configs])), strict=True))
    mine = [covered(HybridSearcher(SPACE, TASK, seed), shares, 24) for seed in range(2)]
    chance = [covered(RandomSearcher(SPACE, TASK, seed), shares, 48) for seed in range(2)]
    assert min(mine) > max(chance), "with half of the trials"
    assert min(mine) > 0.9 * hypervolume(np.array(list(shares.values())), np.full(2, 1.1))


@pytest.mark.parametrize("goals", [2, 3])
def test_improvement_is_the_expected_growth_of_the_hypervolume(goals: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(goals)
    encoder = Encoder(SPACE)
    models = [Surrogate(encoder, {}) for _ in range(goals)]
    model = FrontSurrogate(models, encoder, {})
    model.fit([answer(number, *np.exp(rng.normal(size=goals))) for number in range(12)])
    points = np.stack([one.targets for one in models], axis=1)
    front = points[on_front(points)]
    worst, best = front.max(axis=0), front.min(axis=0)
    reference = worst + 0.2 * (worst - best) + 0.2
    before = hypervolume(front, reference)
    mean, deviation = rng.normal(size=(12, goals)) - 0.5, rng.uniform(0.1, 0.6, size=(12, goals))
    drawn = mean[:, None, :] + deviation[:, None, :] * rng.normal(size=(12, 200, goals))
    growth = [np.mean([hypervolume(np.vstack([front, point]), reference) - before for point in points]) for points in drawn]
    monkeypatch.setattr(model, "predict", lambda rows: (mean, deviation))
    said = model.improvement(encoder.rows(()))
    assert np.corrcoef(said, growth)[0, 1] > 0.98, "the same up to a constant and the few directions"
    assert (said > 0.0).all(), "an order among candidates that hardly improve anything"


def test_what_is_under_way_is_expected_to_improve_little_again() -> None:
    encoder = Encoder(SPACE)
    models = [Surrogate(encoder, {}) for _ in range(2)]
    model = FrontSurrogate(models, encoder, {})
    configs = list(SPACE.enumerate())[::97]
    answers = [
        Answer(config=config, loss=0.0, origin=Origin(), age=(0, 0, config.key), losses=GOALS.losses(served(config))) for config in configs
    ]
    model.fit(answers)
    rows = encoder.rows(SPACE.enumerate())
    best = int(np.argmax(model.improvement(rows)))
    before = model.improvement(rows)[best]
    model.fit(answers, [list(SPACE.enumerate())[best]])
    assert model.improvement(rows)[best] < 0.5 * before


def test_leaders_are_the_front_of_what_was_measured() -> None:
    answers = [answer(0, 1.0, 9.0), answer(1, 9.0, 1.0), answer(2, 9.5, 9.5), answer(3, float("inf"), float("inf"))]
    assert {one.config for one in leaders(answers)} == {answers[0].config, answers[1].config}
    assert leaders(answers[3:]) == []


def test_a_trial_of_which_a_goal_is_missing_counts_as_a_failure() -> None:
    searcher = HybridSearcher(SPACE, TASK, 0)
    for _ in range(8):
        (proposal,) = searcher.ask(1)
        metrics = dict(served(proposal.config).metrics)
        if proposal.config["mode"] == "x":
            metrics.pop("late_ms")
        searcher.tell([Trial(proposal=proposal, measurement=Measurement(status=Status.OK, metrics=metrics))])
    assert len(searcher.ask(2)) == 2
