"""The shipped suite over every executor there is, each with one slot and with two."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autoscout.core import plugins
from autoscout.core.protocols import Executor
from autoscout.testing.executor import ExecutorSuite, build

NAMES = plugins.available("executor")
ELSEWHERE = [name for name in NAMES if plugins.requirements("executor", name) or plugins.programs("executor", name)]


class TestEveryExecutor(ExecutorSuite):
    @pytest.fixture(params=[name for name in NAMES if name not in ELSEWHERE])
    def kind(self, request: pytest.FixtureRequest) -> type:
        found: type = plugins.get("executor", request.param)
        return found

    @pytest.fixture(params=[1, 2], ids=["one-slot", "two-slots"])
    def executor(self, kind: Any, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executor]:
        if request.param > 1 and "slots" not in plugins.option_names(kind):
            pytest.skip("has no option for slots")
        with build(kind, tmp_path_factory.mktemp("results"), request.param) as executor:
            assert executor.slots >= request.param
            yield executor


@pytest.mark.parametrize("name", ELSEWHERE)
def test_an_executor_that_needs_more_has_a_file_of_its_own(name: str) -> None:
    """It may need a cluster that is started once for all tests, or an environment that has its packages."""
    file = Path(__file__).with_name(f"test_{name.replace('-', '_')}.py")
    assert file.exists(), "write it, with a class that runs ExecutorSuite"
    assert "(ExecutorSuite)" in file.read_text()
