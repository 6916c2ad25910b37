"""The searcher of examples/own_searcher.py keeps the whole contract, so that the example is one to copy."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autoscout.space import Space
from autoscout.testing.searcher import SPACES, SearcherSuite

EXAMPLE = Path(__file__).parent.parent / "examples" / "own_searcher.py"


class TestDownhill(SearcherSuite):
    covers = False  # its random part gives up after a hundred draws

    @pytest.fixture
    def make(self) -> Callable[..., Any]:
        spec = importlib.util.spec_from_file_location("own_searcher", EXAMPLE)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.Downhill

    @pytest.fixture(params=SPACES)
    def space(self, request: pytest.FixtureRequest) -> Space:
        return SPACES[request.param]()
