from __future__ import annotations

import numpy as np
import pytest

from autoscout.common.front import comparable, hypervolume
from autoscout.core.config import Config
from autoscout.core.protocols import Searcher
from autoscout.core.task import Goal, Objective, Task
from autoscout.core.trial import Measurement, Status, Trial
from autoscout.search.evolution import EvolutionSearcher
from autoscout.space import Grid, Space
from autoscout.study.scalarised import ScalarisedSearcher
from autoscout.testing.searcher import SPACES, Make, SearcherSuite

SEVERAL = Task(system="toy", objective=Objective(metric="time_s", also=(Goal(metric="memory_gb"),)))


class TestScalarised(SearcherSuite):
    """It keeps the contract of the searcher inside it."""

    covers = False

    @pytest.fixture
    def make(self) -> Make:
        return lambda space, task, seed: ScalarisedSearcher(lambda one: EvolutionSearcher(space, one, seed), task, seed)

    @pytest.fixture(params=["conditional", "listed"])
    def space(self, request: pytest.FixtureRequest) -> Space:
        return SPACES[request.param]()


def test_it_covers_more_of_a_front_than_the_same_searcher_with_one_goal() -> None:
    space = Space([Grid("x", 0, 15), Grid("y", 0, 15, default=15)])

    def measured(config: Config) -> Measurement:
        x, y = float(str(config["x"])), float(str(config["y"]))
        return Measurement(status=Status.OK, metrics={"time_s": 1.0 + x + y, "memory_gb": 16.0 - x + y})

    everything = np.array([SEVERAL.objective.losses(measured(config)) for config in space.enumerate()])
    shares = dict(zip(space.enumerate(), comparable(everything), strict=True))

    def covered(searcher: Searcher) -> float:
        found = []
        for _ in range(60):
            (proposal,) = searcher.ask(1)
            found.append(shares[proposal.config])
            searcher.tell([Trial(proposal=proposal, measurement=measured(proposal.config))])
        return hypervolume(np.array(found), np.full(2, 1.1))

    several = [covered(ScalarisedSearcher(lambda one, seed=seed: EvolutionSearcher(space, one, seed), SEVERAL, seed)) for seed in range(3)]
    single = [covered(EvolutionSearcher(space, SEVERAL, seed)) for seed in range(3)]
    assert np.mean(several) > 1.05 * np.mean(single)
