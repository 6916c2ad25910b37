"""The shipped suite over every backend of the tuner; each brings the task that it is tried on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from _houses import own
from autoscout.core import plugins
from autoscout.core.protocols import Backend
from autoscout.core.trial import Status
from autoscout.execute.local import LocalExecutor, LocalOptions
from autoscout.testing.backend import BackendSuite, example


def usable(name: str) -> type:
    health = plugins.health("backend", name)
    if not health.usable:
        pytest.skip(health.why)
    found: type = plugins.get("backend", name)
    return found


class TestEveryBackend(BackendSuite):
    @pytest.fixture(params=own("backend", "autoscout"))
    def kind(self, request: pytest.FixtureRequest) -> type:
        return usable(request.param)

    @pytest.fixture
    def backend(self, kind: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Backend:
        monkeypatch.setenv("AUTOSCOUT_CACHE", str(tmp_path))
        monkeypatch.setenv("OMP_WAIT_POLICY", "passive")  # tests share their cores, and spinning threads would wait for each other
        made: Backend = kind()
        return made

    @pytest.fixture
    def given(self, kind: type) -> dict[str, Any]:
        return example(kind)

    def test_the_example_can_be_measured_here(self, backend: Backend, given: dict[str, Any], tmp_path: Path) -> None:
        task = backend.task(given)
        launch = backend.render(backend.space(task).default(), task, seed=1)
        with LocalExecutor(LocalOptions(folder=tmp_path / "trials")) as executor:
            done = backend.parse(executor.submit(launch).result(600.0), task)
        assert done.status is Status.OK, done.reason
        assert task.objective.metric in done.metrics


class TestLossyLlamaCpp(BackendSuite):
    """With the knobs that have to be asked for."""

    @pytest.fixture
    def backend(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Backend:
        monkeypatch.setenv("AUTOSCOUT_CACHE", str(tmp_path))
        made: Backend = usable("llamacpp")()
        return made

    @pytest.fixture
    def given(self) -> dict[str, Any]:
        return {"workload": {"model": "random-tiny", "allow_lossy": True, "engine_defaults": "llama-server", "concurrency": 3}}


def test_a_backend_without_an_example_is_told_what_to_write() -> None:
    class Bare(Backend):
        pass

    with pytest.raises(AssertionError, match=r"Bare brings no example: write `@classmethod def example"):
        example(Bare)
