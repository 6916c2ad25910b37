"""The shipped suite over every scheduler there is."""

from __future__ import annotations

import pytest

from autoscout.core import plugins
from autoscout.testing.scheduler import SchedulerSuite


class TestEveryScheduler(SchedulerSuite):
    @pytest.fixture(params=plugins.available("scheduler"))
    def kind(self, request: pytest.FixtureRequest) -> type:
        found: type = plugins.get("scheduler", request.param)
        return found
