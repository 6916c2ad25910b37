"""What `hybrid` makes of failures, of branches, and of losses of all sizes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from autoscout.core.config import Config
from autoscout.core.seeds import stream
from autoscout.core.trial import Measurement, Proposal, Status, Trial
from autoscout.learning.gaussian import Process
from autoscout.search.hybrid import HybridSearcher, tuning
from autoscout.search.hybrid.candidates import Candidates
from autoscout.search.hybrid.options import HybridOptions
from autoscout.search.hybrid.success import Success, boundary
from autoscout.search.hybrid.target import ruler, standardise
from autoscout.space import Choice, Flag, Grid, Space
from autoscout.space.encode import Encoder
from autoscout.testing.searcher import TASK

MEMORY = Space(
    [
        Grid("batch", values=[1, 2, 4, 8]),
        Grid("shards", values=[1, 2, 4, 8]),
        Choice("kernel", ["a", "b", "c"]),
    ]
)


def fits(config: Config) -> bool:
    return int(str(config["batch"])) <= int(str(config["shards"]))


def seconds(config: Config) -> float:
    """Large batches are quick, shards cost: the best that fits is at the edge of memory."""
    extra = {"a": 0.0, "b": 1.0, "c": 2.0}[str(config["kernel"])]
    return 10.0 / int(str(config["batch"])) ** 0.5 + 0.3 * int(str(config["shards"])) + extra


def told(proposal: Proposal) -> Trial:
    if not fits(proposal.config):
        return Trial(proposal=proposal, measurement=Measurement(status=Status.OOM_START))
    return Trial(proposal=proposal, measurement=Measurement(status=Status.OK, metrics={"time_s": seconds(proposal.config)}))


def ended(searcher: HybridSearcher, most: int) -> list[Trial]:
    found: list[Trial] = []
    while len(found) < most and (proposals := searcher.ask(1)):
        found.append(told(proposals[0]))
        searcher.tell(found[-1:])
    return found


def test_a_straight_boundary_is_known_from_few_labels() -> None:
    encoder = Encoder(MEMORY)
    every = list(MEMORY.enumerate())
    rng = stream(3, "labels")
    drawn = [every[int(row)] for row in rng.choice(len(every), size=14, replace=False)]
    model = Success(encoder)
    model.fit(encoder.rows(drawn), np.array([float(fits(config)) for config in drawn]), np.full(len(drawn), 1.5))
    rest = [config for config in every if config not in drawn]
    chance = model.chance(encoder.rows(rest), np.full(len(rest), 1.5))
    good = np.array([fits(config) for config in rest])
    assert chance[good].mean() > 0.6 > 0.4 > chance[~good].mean()
    assert np.mean((chance > 0.5) == good) > 0.8


def test_the_boundary_agrees_with_its_labels_and_the_expectation_far_from_them() -> None:
    columns = 3.0 * np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    weights, whiten = boundary(columns, np.array([1.0, 0.0]), np.array([0.0, 0.0]))
    latent = columns @ weights
    assert latent[0] > 1.0 > -1.0 > latent[1]
    # the mode of the posterior: a weight is what its labels differ from their chances
    assert np.allclose(weights, columns.T @ (np.array([1.0, 0.0]) - 1.0 / (1.0 + np.exp(-latent))), atol=1e-2)
    assert weights[2] == 0.0
    assert (whiten.T @ whiten)[2, 2] == pytest.approx(1.0), "nothing was learnt of a knob that was never moved"


def test_a_cautious_search_tries_what_may_fail_last() -> None:
    space = Space([*MEMORY.knobs.values(), Grid("queue", values=[1, 2, 3])])
    bold, cautious = (HybridSearcher(space, TASK, seed=1, options=HybridOptions(cautious=careful)) for careful in (False, True))
    failures = [sum(not trial.ok for trial in ended(searcher, 60)) for searcher in (bold, cautious)]
    assert failures[1] < 0.5 * failures[0]
    trials = ended(cautious, 1000)
    assert len(trials) + 60 == len(list(space.enumerate())), "nothing is ruled out"


def test_the_search_ends_when_nothing_is_expected_of_what_is_left() -> None:
    space = Space([*MEMORY.knobs.values(), Grid("queue", values=[1, 2, 3])])
    trials = ended(HybridSearcher(space, TASK, seed=1, options=HybridOptions(stop_gain=0.001)), 1000)
    good = [trial for trial in trials if trial.measurement.ok]
    assert len(trials) < len(list(space.enumerate()))
    assert min(seconds(trial.config) for trial in good) == min(seconds(config) for config in space.enumerate() if fits(config))


def starts(failing: int) -> tuple[Space, list[Config]]:
    """Six starts, one of which fails."""
    space = Space([Grid(f"k{index}", 1, 5) for index in range(6)])
    searcher = HybridSearcher(space, TASK, seed=0, options=HybridOptions(start=6))
    found: list[Config] = []
    for step in range(6):
        proposal = searcher.ask(1)[0]
        found.append(proposal.config)
        status = Status.OOM_START if step == failing else Status.OK
        searcher.tell([Trial(proposal=proposal, measurement=Measurement(status=status, metrics={"time_s": 1.0 + step}))])
    return space, found


def apart(space: Space, config: Config, others: list[Config]) -> int:
    return min(sum(config[name] != other[name] for name in space.knobs) for other in others)


def test_starts_are_far_from_each_other() -> None:
    space, found = starts(failing=0)
    assert min(apart(space, found[step], found[1:step]) for step in range(2, 5)) > 2


def test_the_spread_that_is_expected_of_losses_fades() -> None:
    alike = np.linspace(1.0, 1.01, 30)
    assert ruler(alike[:3])[0].deviation > 0.2
    assert ruler(alike)[0].deviation < 0.05


def test_candidates_come_from_all_branches_alike() -> None:
    below = [Grid(f"s{index}", 1, 20, when="spec") for index in range(4)]
    space = Space([Flag("spec", default=False), *(Grid(f"k{index}", 1, 20) for index in range(3)), *below])
    rng = np.random.default_rng(0)
    drawn = [space.sample(rng) for _ in range(100)]
    assert sum(config is not None and config["spec"] is False for config in drawn) == 0  # 1 in 160,000
    pool = Candidates(space, Encoder(space), seed=0, given=Config())
    off = sum(config["spec"] is False for config in pool.configs)
    assert 0.4 < off / len(pool.configs) < 0.6
    pinned = Candidates(space, Encoder(space), seed=0, given=Config(spec=True))
    assert all(config["spec"] is True for config in pinned.configs)


def test_round_numbers_are_alike() -> None:
    space = Space([Grid("block", values=list(range(16, 272, 16)))])
    encoder = Encoder(space)
    assert encoder.groups == 2
    rows = {value: encoder.rows([Config(block=value)]).plain[0] for value in (64, 112, 128, 144, 192)}
    assert abs(rows[128][1] - rows[64][1]) < abs(rows[128][1] - rows[112][1])
    assert rows[112][1] == rows[144][1]
    # quick where a multiple of 64, whatever the size
    known = [16, 48, 64, 80, 128, 160, 208, 240]
    targets = np.array([-1.0 if value % 64 == 0 else 0.5 for value in known])
    process = Process(encoder)
    process.fit(encoder.rows([Config(block=value) for value in known]), targets)
    process.condition(encoder.rows([Config(block=value) for value in known]), targets)
    mean, _ = process.predict(encoder.rows([Config(block=192), Config(block=176)]))
    assert mean[0] < mean[1] - 0.3


def test_powers_of_two_and_categories_have_no_grain() -> None:
    space = Space([Grid("size", values=[1, 2, 4, 8, 16]), Choice("kind", ["a", "b", "c"]), Grid("depth", 1, 3)])
    assert Encoder(space).groups == 3


def test_the_spread_of_few_alike_trials_is_not_that_of_the_space() -> None:
    few, unit = standardise(np.array([10.0, 10.1, 10.2]))
    assert np.abs(few).max() < 0.2
    assert unit > 0.5 * tuning.USUAL_DEVIATION
    many, unit = standardise(np.exp(np.linspace(-0.05, 0.05, 200)))
    assert 0.4 < many.std() < 1.0
    mixed, _ = standardise(np.array([-1.0, 0.0, 1.0]))
    assert math.isclose(float(mixed.mean()), 0.0, abs_tol=1e-12)


def test_how_slow_the_slow_ones_are_does_not_matter() -> None:
    losses = np.array([1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.2, 50.0])
    plain = np.log(losses)
    drawn, _ = standardise(losses)
    share = (drawn[-1] - drawn[-2]) / (drawn[-2] - drawn[0])
    assert share < 0.8 * (plain[-1] - plain[-2]) / (plain[-2] - plain[0])
