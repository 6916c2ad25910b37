"""The shipped suite over every executor there is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from autoscout.core import plugins
from autoscout.execute.inline import InlineExecutor, InlineOptions
from autoscout.execute.local import LocalExecutor, LocalOptions
from autoscout.testing.executor import ExecutorSuite


class TestInline(ExecutorSuite):
    isolates_calls = False
    bounded = False

    @pytest.fixture
    def executor(self) -> Iterator[InlineExecutor]:
        with InlineExecutor(InlineOptions(grace_s=0.5)) as executor:
            yield executor


class TestLocal(ExecutorSuite):
    @pytest.fixture
    def executor(self) -> Iterator[LocalExecutor]:
        with LocalExecutor(LocalOptions(grace_s=0.5)) as executor:
            yield executor


class TestLocalWithTwoSlots(ExecutorSuite):
    @pytest.fixture
    def executor(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalExecutor]:
        folder: Path = tmp_path_factory.mktemp("results")
        with LocalExecutor(LocalOptions(grace_s=0.5, slots=2, folder=folder)) as executor:
            yield executor


def test_every_executor_runs_through_the_suite() -> None:
    assert plugins.available("executor") == ("inline", "local", "ray"), "a new executor wants a class above, or a file as test_ray.py"
    assert [plugins.get("executor", name) for name in ("inline", "local")] == [InlineExecutor, LocalExecutor]
