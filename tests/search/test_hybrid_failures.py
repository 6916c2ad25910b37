"""What `hybrid` makes of failures, of ties, of branches, of numbers that are round, and of answers that are not what it asked for."""

from __future__ import annotations

import math
import zlib

import numpy as np
import pytest

from autoscout.core.config import Config
from autoscout.core.seeds import stream
from autoscout.core.trial import Measurement, Proposal, Status, Trial
from autoscout.search._shared.gaussian import Process
from autoscout.search.hybrid import HybridSearcher
from autoscout.search.hybrid import searcher as searcher_module
from autoscout.search.hybrid.candidates import Candidates
from autoscout.search.hybrid.ledger import Answer
from autoscout.search.hybrid.options import HybridOptions
from autoscout.search.hybrid.past import Belief
from autoscout.search.hybrid.reach import Reach
from autoscout.search.hybrid.success import Success, attainable, boundary
from autoscout.search.hybrid.surrogate import Surrogate
from autoscout.search.hybrid.target import USUAL, ruler, standardise
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
    """Large batches are quick, shards cost: the best that fits stands at the edge of memory."""
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
    model = Success(encoder, stream(0, "votes"))
    model.fit(encoder.rows(drawn), np.array([float(fits(config)) for config in drawn]))
    rest = [config for config in every if config not in drawn]
    chance = model.chance(encoder.rows(rest))
    good = np.array([fits(config) for config in rest])
    assert chance[good].mean() > 0.6 > 0.4 > chance[~good].mean()
    assert np.mean((chance > 0.5) == good) > 0.8


def test_the_boundary_agrees_with_its_labels_and_the_expectation_far_from_them() -> None:
    kernel = 9.0 * np.array([[1.0, 0.0], [0.0, 1.0]])
    pull, root, whiten = boundary(kernel, np.array([1.0, 0.0]), np.array([0.0, 0.0]))
    latent = kernel @ pull
    assert latent[0] > 1.0 > -1.0 > latent[1]
    # the mode of the posterior: what a row pulls is its label less its chance
    assert np.allclose(pull, np.array([1.0, 0.0]) - 1.0 / (1.0 + np.exp(-latent)), atol=1e-2)
    assert len(root) == len(whiten) == 2


def test_the_search_ends_when_all_that_is_left_will_fail() -> None:
    space = Space([*MEMORY.knobs.values(), Grid("queue", values=[1, 2, 3])])
    trials = ended(HybridSearcher(space, TASK, seed=1), 1000)
    good = [trial for trial in trials if trial.measurement.ok]
    assert 40 <= len(trials) < len(list(space.enumerate()))
    assert min(seconds(trial.config) for trial in good) == min(seconds(config) for config in space.enumerate() if fits(config))
    goes_on = ended(HybridSearcher(space, TASK, seed=1, options=HybridOptions(stop_failing=False)), 1000)
    assert len(goes_on) == len(list(space.enumerate()))


def starts(failing: int) -> tuple[Space, list[Config]]:
    """Six starts of which one fails."""
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


def test_after_a_failure_starts_stay_near_what_worked() -> None:
    space, found = starts(failing=2)
    for step in range(3, 6):
        assert apart(space, found[step], [config for row, config in enumerate(found[:step]) if row != 2]) <= 2


def test_where_the_default_fails_starts_go_far() -> None:
    space, found = starts(failing=0)
    assert min(apart(space, found[step], found[1:step]) for step in range(2, 5)) > 2


def test_where_the_model_promises_nothing_it_is_doubted_next_to_the_best() -> None:
    space = Space([Choice("kind", ["a", "b", "c", "d"]), *(Grid(f"k{index}", 1, 7) for index in range(3))])
    searcher = HybridSearcher(space, TASK, seed=0)
    losses: dict[Config, float] = {}
    doubted = 0
    for _ in range(120):
        proposal = searcher.ask(1)[0]
        config = proposal.config
        if proposal.origin.notes.get("arm") == "doubt":
            doubted += 1
            best = sorted(losses, key=lambda known: (losses[known], known.key))[:4]
            assert apart(space, config, best) == 1
        losses[config] = 1.0 + 0.2 * (abs(int(str(config["k0"])) - 2) + abs(int(str(config["k2"])) - 5)) + 0.001 * int(str(config["k1"]))
        searcher.tell([Trial(proposal=proposal, measurement=Measurement(status=Status.OK, metrics={"time_s": losses[config]}))])
    assert doubted > 10


def first_doubt(ties: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """The first step at which the model is doubted where a quarter of the space is alike but for noise."""
    monkeypatch.setattr(searcher_module, "TIES", ties)
    space = Space([Choice("kind", ["a", "b", "c", "d"]), *(Grid(f"k{index}", 1, 7) for index in range(3))])
    searcher = HybridSearcher(space, TASK, seed=0)
    for step in range(60):
        proposal = searcher.ask(1)[0]
        if proposal.origin.notes.get("arm") == "doubt":
            return step
        config = proposal.config
        noise = 0.01 * (zlib.crc32(config.key.encode()) % 100) / 100
        loss = (1.0 if config["kind"] == "b" else 2.0) + noise
        searcher.tell([Trial(proposal=proposal, measurement=Measurement(status=Status.OK, metrics={"time_s": loss}))])
    return 60


def test_a_model_that_tells_ties_apart_is_doubted_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    assert first_doubt(8, monkeypatch) < first_doubt(1000, monkeypatch) - 4


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
    assert unit > 0.5 * USUAL
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


def test_some_that_are_far_slower_do_not_make_the_rest_look_alike() -> None:
    good = np.linspace(25.0, 26.5, 30)
    slow = np.linspace(40.0, 75.0, 12)
    alone, _ = standardise(good)
    among, _ = standardise(np.concatenate([good, slow]))
    assert np.ptp(among[:30]) > 0.3 * np.ptp(alone)
    assert ruler(np.concatenate([good, slow]))[0].deviation < 0.5 * np.log(np.concatenate([good, slow])).std()
    even = np.exp(np.linspace(0.0, 1.0, 60))
    assert ruler(even)[0].centre == pytest.approx(0.5), "nothing is far there"


def test_answers_are_expected_to_be_off_as_earlier_ones_were() -> None:
    space = Space([Grid("x", 1, 101), Choice("kind", ["a", "b", "c"]), Flag("on"), Grid("inner", 1, 9, when="on")])
    encoder = Encoder(space)
    asked, given = Config(x=20, kind="a", on=False), Config(x=40, kind="b", on=False)
    rows = encoder.rows([Config(x=50, kind="a", on=True, inner=3), Config(x=95, kind="c", on=False)])
    answers, times = Reach(encoder, [(asked, given)]).likely(rows, stream(0, "reach"))
    assert times == 1
    wanted = encoder.rows([Config(x=70, kind="b", on=True, inner=3), Config(x=87, kind="b", on=False)])
    assert answers.codes.tolist() == wanted.codes.tolist(), "as far and back from the end, and nothing that was answered as asked"
    assert np.array_equal(answers.plain, wanted.plain)
    outside = Config(x=20, kind="a", on=False, more=1)
    same, times = Reach(encoder, [(outside, given)]).likely(rows, stream(0, "reach"))
    assert (times, same.codes.tolist()) == (1, rows.codes.tolist()), "what is not of this space says nothing"


GRID = Space([Grid("x", 1, 12, default=6), Grid("y", 1, 12, default=6)])


def tried(count: int, seed: int) -> list[Config]:
    rng = np.random.default_rng(seed)
    return list(dict.fromkeys(Config({"x": int(x), "y": int(y)}) for x, y in rng.integers(1, 13, (count, 2))))


def low(config: Config) -> bool:
    return int(str(config["x"])) <= 6


def test_what_cannot_be_had_is_foretold_where_it_follows_a_rule() -> None:
    encoder, rng = Encoder(GRID), np.random.default_rng(0)
    asked = tried(40, seed=1)
    had, refused = [config for config in asked if low(config)], [config for config in asked if not low(config)]
    model = attainable(encoder, rng, had, refused)
    assert model is not None
    near, far = model.chance(encoder.rows([Config({"x": 2, "y": 7}), Config({"x": 11, "y": 7})]))
    assert near > 0.8 > 0.3 > far


def test_what_cannot_be_had_by_chance_is_not_avoided() -> None:
    encoder, rng = Encoder(GRID), np.random.default_rng(0)
    asked = tried(40, seed=2)
    assert attainable(encoder, rng, asked[::2], asked[1::2]) is None
    assert attainable(encoder, rng, asked, []) is None
    assert attainable(encoder, rng, [], asked) is None


def test_what_cannot_be_had_is_no_failure() -> None:
    encoder = Encoder(GRID)
    asked = tried(40, seed=1)
    answers = [Answer(config, config.key, 1.0 + float(str(config["y"])), None, {}, measured=True) for config in asked if low(config)]
    model = Surrogate(encoder, 0, HybridOptions(), Belief(GRID, encoder, ()), {})
    model.fit(answers, unreachable=[config for config in asked if not low(config)])
    there = encoder.rows([Config({"x": 11, "y": 7})])
    assert model.works(there)[0] == 1.0
    assert model.failing(there) == 0.0
    assert model.chance(there)[0] < 0.3
