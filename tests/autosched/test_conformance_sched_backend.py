"""The shipped suite over the backend that this package brings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autosched.backend import SchedBackend
from autoscout.core.protocols import Backend
from autoscout.core.trial import Status
from autoscout.execute.inline import InlineExecutor
from autoscout.testing.backend import BackendSuite, example


class TestTheSchedBackend(BackendSuite):
    @pytest.fixture
    def backend(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Backend:
        monkeypatch.setenv("AUTOSCOUT_CACHE", str(tmp_path))
        return SchedBackend()

    @pytest.fixture
    def given(self) -> dict[str, Any]:
        return example(SchedBackend)

    def test_the_example_can_be_measured_here(self, backend: Backend, given: dict[str, Any]) -> None:
        task = backend.task(given)
        launch = backend.render(backend.space(task).default(), task, seed=1)
        with InlineExecutor() as executor:
            done = backend.parse(executor.submit(launch).result(600.0), task)
        assert done.status is Status.OK, done.reason
        assert task.objective.metric in done.metrics
