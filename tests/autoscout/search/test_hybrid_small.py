"""`hybrid` in small spaces: the example of the guide, whatever its default, and never worse than chance."""

from __future__ import annotations

from itertools import product

import pytest

import autoscout
from autoscout import Choice, Grid, Infeasible, Space
from autoscout.core.config import Config
from autoscout.core.trial import Measurement, Proposal, Status, Trial
from autoscout.search.hybrid import HybridSearcher
from autoscout.testing.searcher import TASK

BATCHES = [2**power for power in range(9)]
BEST = Config(mode="exact", batch=32)


def seconds(config: Config) -> float | None:
    """Of the guide: large batches are quick, the exact mode is quicker but does not fit above 32, nothing fits above 128."""
    mode, batch = config["mode"], config.whole("batch")
    if batch > (32 if mode == "exact" else 128):
        return None
    return 1 / batch + (0.1 if mode == "exact" else 0.2)


def answered(proposal: Proposal) -> Trial:
    value = seconds(proposal.config)
    if value is None:
        return Trial(proposal=proposal, measurement=Measurement(status=Status.OOM_START))
    return Trial(proposal=proposal, measurement=Measurement(status=Status.OK, metrics={"time_s": value}))


def trials_to_best(mode: str, batch: int, seed: int) -> int:
    space = Space([Choice("mode", ["fast", "exact"], default=mode), Grid("batch", values=BATCHES, default=batch)])
    searcher = HybridSearcher(space, TASK, seed)
    for count in range(1, 1 + 2 * len(BATCHES)):
        (proposal,) = searcher.ask(1)
        if proposal.config == BEST:
            return count
        searcher.tell([answered(proposal)])
    raise AssertionError("the best configuration was never proposed")


def test_the_best_is_found_from_every_default_and_sooner_than_by_chance() -> None:
    counts = [trials_to_best(mode, batch, seed) for mode, batch, seed in product(("fast", "exact"), BATCHES, (0, 1))]
    assert max(counts) <= 12, "the budget of the guide"
    for budget in (8, 10):
        assert sum(count <= budget for count in counts) / len(counts) > budget / (2 * len(BATCHES)), "what chance finds"


def test_the_only_one_that_works_is_found_about_as_often_as_by_chance() -> None:
    """Failures alone do not say where they end: a search that always tries what is far from them never looks in their midst."""
    space = Space([Grid("size", 1, 60, default=1)])

    def is_found(only: int) -> bool:
        searcher = HybridSearcher(space, TASK, seed=only)
        for _ in range(30):
            (proposal,) = searcher.ask(1)
            if proposal.config["size"] == only:
                return True
            searcher.tell([Trial(proposal=proposal, measurement=Measurement(status=Status.OOM_START))])
        return False

    hits = [is_found(only) for only in range(20, 41)]
    assert sum(hits) >= 0.4 * len(hits), "chance finds half of them in half of the space"


@pytest.mark.parametrize("seed", range(3))
def test_the_guides_example_finds_its_best(seed: int) -> None:
    space = Space(
        [Choice("mode", ["fast", "exact"]), Grid("batch", 1, 256, log=True, default=8)],
        constraints=["mode == 'fast' or batch <= 64"],
    )

    def step(config: Config) -> dict[str, float]:
        if config["mode"] == "exact" and config.whole("batch") > 32:
            raise Infeasible("does not fit")
        return {"seconds": 1 / config.whole("batch") + (0.1 if config["mode"] == "exact" else 0.2), "memory_gb": config.whole("batch") / 16}

    outcome = autoscout.minimize(step, space, trials=12, metric="seconds", limits=["memory_gb<=8"], seed=seed)
    assert outcome.best == BEST
