"""The shipped suite over every simulator of the tuner; one that understands few tasks brings the task that it is tried on."""

from __future__ import annotations

from typing import Any

import pytest

from _houses import own
from autoscout.core import plugins
from autoscout.core.task import Task
from autoscout.space import Space
from autoscout.testing.simulator import Make, SimulatorSuite, example


def marked(name: str) -> Any:
    """One that needs more packages is tested where those are; see scripts/test."""
    return pytest.param(name, marks=[pytest.mark.adapters, pytest.mark.slow] if plugins.requirements("simulator", name) else [])


class TestEverySimulator(SimulatorSuite):
    @pytest.fixture(params=[marked(name) for name in own("simulator", "autoscout")])
    def make(self, request: pytest.FixtureRequest) -> Make:
        found: Make = plugins.get("simulator", request.param)
        return found

    @pytest.fixture
    def space(self, make: type) -> Space:
        return example(make)[0]

    @pytest.fixture
    def task(self, make: type) -> Task:
        return example(make)[1]
