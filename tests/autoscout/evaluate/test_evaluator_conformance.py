"""The shipped suite over every evaluator there is."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from _systems import Behaviours, Script, proposal, task
from autoscout.backends.function import FunctionBackend
from autoscout.core.config import Config
from autoscout.core.errors import Infeasible
from autoscout.core.trial import Proposal, Status
from autoscout.evaluate.profiler import Profiler, ProfilerOptions
from autoscout.execute.inline import InlineExecutor, InlineOptions
from autoscout.execute.local import LocalExecutor, LocalOptions
from autoscout.testing.evaluator import EvaluatorSuite
from autoscout.testing.executor import wait_for

CLEAN = ProfilerOptions(dirty_repeats=0)


class _OfScript(EvaluatorSuite):
    @pytest.fixture
    def good(self) -> list[Proposal]:
        return [proposal(1), proposal(2.5), proposal(3)]

    @pytest.fixture
    def bad(self) -> list[tuple[Proposal, Status]]:
        expected = {
            "crash": Status.CRASHED,
            "garbage": Status.WRONG_OUTPUT,
            "silent": Status.WRONG_OUTPUT,
            "forbidden": Status.INVALID,
            "unrenderable": Status.INVALID,
        }
        return [(proposal(x), status) for x, status in expected.items()]

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def slow(self) -> Proposal:
        return proposal("hang")

    def started(self) -> None:
        wait_for((self.folder / "hanging").exists, "the script hangs")


class TestProfilerLocal(_OfScript):
    @pytest.fixture
    def evaluator(self, tmp_path: Path) -> Iterator[Profiler]:
        with LocalExecutor(LocalOptions(slots=2, grace_s=0.2)) as executor:
            yield Profiler(Script(folder=str(tmp_path)), executor, task(), Behaviours(), CLEAN)


class TestProfilerInline(_OfScript):
    @pytest.fixture
    def evaluator(self, tmp_path: Path) -> Iterator[Profiler]:
        with InlineExecutor(InlineOptions(grace_s=0.2)) as executor:
            yield Profiler(Script(folder=str(tmp_path)), executor, task(), Behaviours(), CLEAN)


def objective(config: Config) -> object:
    x = config["x"]
    if x == "hang":
        Path(os.environ["SUITE_FOLDER"], "hanging").touch()
        time.sleep(3600)
    if x == "infeasible":
        raise Infeasible("does not fit", status=Status.OOM_START)
    if x == "raise":
        raise ZeroDivisionError("by zero")
    if x == "memory":
        raise MemoryError
    if x == "exit":
        raise SystemExit(0)
    if x == "nan":
        return float("nan")
    if x == "none":
        return None
    if x == "other":
        return {"something": 1.0}
    return {"time_s": x, "more": 2} if x == 3 else x


class _OfFunction(EvaluatorSuite):
    @pytest.fixture
    def good(self) -> list[Proposal]:
        return [proposal(1), proposal(2.5), proposal(3)]

    @pytest.fixture
    def bad(self) -> list[tuple[Proposal, Status]]:
        expected = {
            "infeasible": Status.OOM_START,
            "raise": Status.CRASHED,
            "memory": Status.OOM_RUN,
            "exit": Status.CRASHED,
            "nan": Status.WRONG_OUTPUT,
            "none": Status.WRONG_OUTPUT,
            "other": Status.WRONG_OUTPUT,
            "forbidden": Status.INVALID,
        }
        return [(proposal(x), status) for x, status in expected.items()]

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SUITE_FOLDER", str(tmp_path))
        self.folder = tmp_path

    def slow(self) -> Proposal:
        return proposal("hang")

    def started(self) -> None:
        wait_for((self.folder / "hanging").exists, "the function hangs")


class TestFunctionInline(_OfFunction):
    @pytest.fixture
    def evaluator(self) -> Iterator[Profiler]:
        with InlineExecutor(InlineOptions(slots=3)) as executor:
            yield Profiler(FunctionBackend(function=objective), executor, task(), Behaviours(), CLEAN)  # type: ignore[arg-type]


class TestFunctionLocal(_OfFunction):
    @pytest.fixture
    def evaluator(self) -> Iterator[Profiler]:
        with LocalExecutor(LocalOptions(slots=2, grace_s=0.2)) as executor:
            yield Profiler(FunctionBackend(function=objective), executor, task(), Behaviours(), CLEAN)  # type: ignore[arg-type]
