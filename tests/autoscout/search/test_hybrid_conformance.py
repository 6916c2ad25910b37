"""The contract of searchers, with the switches of `hybrid` in other positions than the default's."""

from __future__ import annotations

import pytest

from autoscout.core.history import Past, PastTrial
from autoscout.core.task import Task
from autoscout.search.hybrid import HybridSearcher
from autoscout.search.hybrid.options import HybridOptions
from autoscout.search.hybrid_paper.searcher import HybridPaperOptions, HybridPaperSearcher
from autoscout.space import Space
from autoscout.testing.searcher import SPACES, Make, SearcherSuite


class _Suite(SearcherSuite):
    @pytest.fixture(params=["conditional", "constrained"])
    def space(self, request: pytest.FixtureRequest) -> Space:
        return SPACES[request.param]()


class TestHybridWithAPast(_Suite):
    """A past study, other starting points, and caution."""

    @pytest.fixture
    def make(self) -> Make:
        def build(space: Space, task: Task, seed: int) -> HybridSearcher:
            trials = tuple(PastTrial(config=space.default().to_json(), loss=float(index)) for index in range(1, 6))
            past = (Past(similarity=0.5, trials=trials),)
            return HybridSearcher(space, task, seed, HybridOptions(start=2, cautious=True, past=past))

        return build


class TestHybridPaperWithoutOrchestrator(_Suite):
    """Arms in turn, one tree."""

    @pytest.fixture
    def make(self) -> Make:
        options = HybridPaperOptions(orchestrator=False, tournament=False)
        return lambda space, task, seed: HybridPaperSearcher(space, task, seed, options)


class TestHybridPaperWithAPast(_Suite):
    """Orderings and a start from a past study, more trees than there are orderings."""

    @pytest.fixture
    def make(self) -> Make:
        def build(space: Space, task: Task, seed: int) -> HybridPaperSearcher:
            trials = (PastTrial(config=space.default().to_json(), loss=1.0), PastTrial(config={}, loss=None))
            past = (Past(similarity=0.5, trials=trials, last={"ordering": list(reversed(space.sparse))}),)
            return HybridPaperSearcher(space, task, seed, HybridPaperOptions(orderings=9, past=past))

        return build
