"""The shipped suite over every trace format there is."""

from __future__ import annotations

import pytest

from autosched.testing.trace_format import TraceFormatSuite
from autoscout.core import plugins


class TestEveryTraceFormat(TraceFormatSuite):
    @pytest.fixture(params=plugins.available("trace-format"))
    def kind(self, request: pytest.FixtureRequest) -> type:
        kind: type = plugins.get("trace-format", request.param)
        return kind
