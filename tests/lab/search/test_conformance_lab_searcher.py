"""The shipped suite over every searcher of the laboratory; adapters to other tuners run where their packages are."""

from __future__ import annotations

from typing import Any

import pytest

from _houses import own
from autoscout.core import plugins
from autoscout.core.protocols import Searcher
from autoscout.core.task import Task
from autoscout.space import Space
from autoscout.testing.searcher import SPACES, Make, SearcherSuite

NAMES = own("searcher", "autoscout_lab")
SLOW_ADAPTERS = ("ax", "openbox")
"""Adapters to other tuners that take about a second for a proposal."""
ADAPTERS = [name for name in NAMES if plugins.requirements("searcher", name) and name not in SLOW_ADAPTERS]
"""The other searchers that need more packages."""


class _OverSpaces(SearcherSuite):
    @pytest.fixture(params=SPACES)
    def space(self, request: pytest.FixtureRequest) -> Space:
        return SPACES[request.param]()


def _maker(name: str) -> Make:
    kind: Any = plugins.get("searcher", name)

    def make(space: Space, task: Task, seed: int) -> Searcher:
        searcher: Searcher = kind(space, task, seed)
        return searcher

    return make


class TestEverySearcher(_OverSpaces):
    @pytest.fixture(params=[name for name in NAMES if name not in (*ADAPTERS, *SLOW_ADAPTERS)])
    def make(self, request: pytest.FixtureRequest) -> Make:
        return _maker(request.param)


@pytest.mark.adapters
class TestEveryAdapter(SearcherSuite):
    @pytest.fixture(params=["conditional", "constrained", "dense", "listed"])
    def space(self, request: pytest.FixtureRequest) -> Space:
        return SPACES[request.param]()

    @pytest.fixture(params=ADAPTERS)
    def make(self, request: pytest.FixtureRequest) -> Make:
        return _maker(request.param)


@pytest.mark.adapters
@pytest.mark.slow
class TestEverySlowAdapter:
    """The parts of the suite that another tuner's memory could break; `make soak` runs all of it."""

    @pytest.fixture(params=["constrained"])
    def space(self, request: pytest.FixtureRequest) -> Space:
        return SPACES[request.param]()

    @pytest.fixture(params=SLOW_ADAPTERS)
    def make(self, request: pytest.FixtureRequest) -> Make:
        return _maker(request.param)

    test_is_a_searcher = SearcherSuite.test_is_a_searcher
    test_pending_is_not_proposed_again = SearcherSuite.test_pending_is_not_proposed_again
    test_every_point_of_a_life_can_be_resumed = SearcherSuite.test_every_point_of_a_life_can_be_resumed
    test_tell_takes_anything = SearcherSuite.test_tell_takes_anything
    test_trials_of_an_older_space_do_no_harm = SearcherSuite.test_trials_of_an_older_space_do_no_harm
    test_a_life_of_failures = SearcherSuite.test_a_life_of_failures
    test_a_stopped_trial_is_no_answer = SearcherSuite.test_a_stopped_trial_is_no_answer


@pytest.mark.adapters
@pytest.mark.soak
class TestEveryAdapterInFull(_OverSpaces):
    @pytest.fixture(params=[*ADAPTERS, *SLOW_ADAPTERS])
    def make(self, request: pytest.FixtureRequest) -> Make:
        return _maker(request.param)
