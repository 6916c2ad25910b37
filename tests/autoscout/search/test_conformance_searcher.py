"""The shipped suite over every searcher of the tuner, with default options and with others that change its course."""

from __future__ import annotations

from typing import Any

import pytest

from _houses import own
from autoscout.core import plugins
from autoscout.core.protocols import Searcher
from autoscout.core.task import Task
from autoscout.search.grid.rules import Rule
from autoscout.search.grid.searcher import GridOptions
from autoscout.search.random import RandomOptions
from autoscout.space import Space
from autoscout.testing.searcher import SPACES, Make, SearcherSuite


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
    @pytest.fixture(params=own("searcher", "autoscout"))
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
