"""The shipped suite over the searcher that AutoSched brings."""

from __future__ import annotations

import pytest

from _houses import own
from autoscout.core import plugins
from autoscout.space import Space
from autoscout.testing.searcher import SPACES, Make, SearcherSuite


class TestEverySearcher(SearcherSuite):
    @pytest.fixture(params=SPACES)
    def space(self, request: pytest.FixtureRequest) -> Space:
        return SPACES[request.param]()

    @pytest.fixture(params=own("searcher", "autosched"))
    def make(self, request: pytest.FixtureRequest) -> Make:
        kind = plugins.get("searcher", request.param)
        return kind  # type: ignore[no-any-return]
