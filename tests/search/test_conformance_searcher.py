"""The shipped suite over every searcher there is, with default options and with others that change its course."""

from __future__ import annotations

from typing import Any

import pytest

from autoscout.core import plugins
from autoscout.core.protocols import Searcher
from autoscout.core.task import Task
from autoscout.search.grid.rules import Rule
from autoscout.search.grid.searcher import GridOptions
from autoscout.search.random import RandomOptions
from autoscout.space import Space
from autoscout.testing.searcher import SPACES, Make, SearcherSuite

NAMES = plugins.available("searcher")
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


class TestRandomThatSamples(_OverSpaces):
    @pytest.fixture
    def make(self) -> Make:
        kind = plugins.get("searcher", "random")
        return lambda space, task, seed: kind(space, task, seed, RandomOptions(listed=0))  # type: ignore[no-any-return]


class TestGridShuffled(SearcherSuite):
    @pytest.fixture(params=[name for name in SPACES if name != "large"])  # more than can be shuffled
    def space(self, request: pytest.FixtureRequest) -> Space:
        return SPACES[request.param]()

    @pytest.fixture
    def make(self) -> Make:
        kind = plugins.get("searcher", "grid")
        return lambda space, task, seed: kind(space, task, seed, GridOptions(shuffle=True, points=1))  # type: ignore[no-any-return]


class TestGridInStages(_OverSpaces):
    covers = False

    @pytest.fixture
    def make(self) -> Make:
        kind = plugins.get("searcher", "grid")

        def make(space: Space, task: Task, seed: int) -> Searcher:
            names = list(space.knobs)
            stages = tuple(tuple(names[at : at + 2]) for at in range(0, len(names), 2))
            searcher: Searcher = kind(space, task, seed, GridOptions(stages=stages, points=2))
            return searcher

        return make


class TestGridWithTemplateAndRules(_OverSpaces):
    covers = False

    @pytest.fixture
    def make(self) -> Make:
        kind = plugins.get("searcher", "grid")

        def make(space: Space, task: Task, seed: int) -> Searcher:
            first, *others = space.knobs
            template = {"section": {"main": f"${{{first}}}"}, "others": [f"${{{name}}}" for name in others[1:]], "fixed": {"a": 1}}
            rule = Rule(name="odd", when={"section.main": ["b", 2]}, need={"fixed.a": 2})
            searcher: Searcher = kind(space, task, seed, GridOptions(template=template, rules=(rule,), points=2))
            return searcher

        return make
