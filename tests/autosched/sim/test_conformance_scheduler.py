"""The shipped suite over every scheduler there is."""

from __future__ import annotations

import pytest

from autosched.testing.scheduler import SchedulerSuite
from autoscout.core import plugins


class TestEveryScheduler(SchedulerSuite):
    @pytest.fixture(params=plugins.available("scheduler"))
    def kind(self, request: pytest.FixtureRequest) -> type:
        found: type = plugins.get("scheduler", request.param)
        return found
