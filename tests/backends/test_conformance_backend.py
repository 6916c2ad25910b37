"""The shipped suite over every backend there is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from autoscout.core import plugins
from autoscout.core.protocols import Backend
from autoscout.testing.backend import BackendSuite

COMMAND: dict[str, Any] = {
    "workload": {
        "command": [sys.executable, "-c", "print('{{\"time_s\": 1}}')", "--batch", "{batch}", "{fast:flag}", ["--bucket", "{bucket_mb}"]],
        "metrics": {"time_s": "json:time_s"},
    },
    "objective": {"metric": "time_s", "direction": "minimize"},
    "space": {
        "knobs": {
            "batch": {"values": [1, 2, 4], "help": "samples at once"},
            "fast": {"type": "bool", "help": "take the short cut"},
            "bucket_mb": {"range": [1, 64], "log": True, "when": "fast", "help": "size of the pieces"},
        }
    },
}
GIVEN: dict[str, dict[str, Any]] = {
    "command": COMMAND,
    "llamacpp": {"workload": {"model": "random-tiny"}},
    "virtual": {},
}
"""Backend -> the least its `task` needs; a new backend wants an entry."""


@pytest.fixture(params=plugins.available("backend"))
def name(request: pytest.FixtureRequest) -> str:
    health = plugins.health("backend", request.param)
    if not health.usable:
        pytest.skip(health.why)
    return str(request.param)


class TestEveryBackend(BackendSuite):
    @pytest.fixture
    def backend(self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Backend:
        monkeypatch.setenv("AUTOSCOUT_CACHE", str(tmp_path))
        made: Backend = plugins.get("backend", name)()
        return made

    @pytest.fixture
    def given(self, name: str) -> dict[str, Any]:
        assert name in GIVEN, f"the backend {name} wants an entry in GIVEN"
        return GIVEN[name]


class TestLossyLlamaCpp(BackendSuite):
    """With the knobs that have to be asked for."""

    @pytest.fixture
    def backend(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Backend:
        monkeypatch.setenv("AUTOSCOUT_CACHE", str(tmp_path))
        if not (health := plugins.health("backend", "llamacpp")).usable:
            pytest.skip(health.why)
        made: Backend = plugins.get("backend", "llamacpp")()
        return made

    @pytest.fixture
    def given(self) -> dict[str, Any]:
        return {"workload": {"model": "random-tiny", "allow_lossy": True, "engine_defaults": "llama-server", "concurrency": 3}}
