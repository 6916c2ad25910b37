"""For the tests of the `llamacpp` backend: the smallest task there is, and launches on the real local executor."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoscout.backends.llamacpp import LlamaCppBackend
from autoscout.core.config import Config, Value
from autoscout.core.launch import Completed, Launch
from autoscout.core.task import Task
from autoscout.core.trial import Measurement
from autoscout.execute.local import LocalExecutor, LocalOptions
from autoscout.load.plan import PLAN

pytest.importorskip("xllamacpp", reason="needs the extra llamacpp")
pytest.importorskip("gguf", reason="needs the extra llamacpp")

SMALL = {"model": "random-tiny", "input_tokens": 8, "output_tokens": 4, "concurrency": 2, "requests": 2, "repeats": 1, "warmup": 1}
HARDWARE = {"cores": 2, "physical_cores": 2, "memory_gb": 8.0, "lockable_gb": 0.0, "numa_nodes": 1}
SOFTWARE = {"xllamacpp": "0", "openmp": True, "gpu_build": False}
PASSIVE = {"OMP_WAIT_POLICY": "passive"}  # the tests share their cores, and spinning threads would wait for each other for minutes


def small_task(cache: Path, **workload: Any) -> Task:
    return LlamaCppBackend().task({"workload": {**SMALL, "cache_dir": str(cache), **workload}})


def fixed_task(hardware: dict[str, Any] | None = None, software: dict[str, Any] | None = None, **workload: Any) -> Task:
    """A task that is the same on every machine."""
    given = {"workload": workload, "hardware": {**HARDWARE, **(hardware or {})}, "software": {**SOFTWARE, **(software or {})}}
    return LlamaCppBackend().task(given)


def config_of(task: Task, **changes: Value) -> Config:
    """The default with some knobs set."""
    space = LlamaCppBackend().space(task)
    config = space.project({**space.default(), **changes}, Config(changes))
    assert space.check(config) == []
    return config


def run(launch: Launch, folder: Path, **changes: Any) -> Completed:
    """As the study runs it: in a process of its own, supervised."""
    launch = replace(launch, env={**PASSIVE, **launch.env}, **changes)
    with LocalExecutor(LocalOptions(folder=folder, grace_s=1.0)) as executor:
        return executor.submit(launch).result(600.0)


def measure(task: Task, folder: Path, config: Config | None = None, **changes: Any) -> Measurement:
    backend = LlamaCppBackend()
    launch = backend.render(config or config_of(task), task, seed=3)
    return backend.parse(run(launch, folder, **changes), task)


def with_settings(launch: Launch, **settings: Any) -> dict[str, str]:
    """The launch's files with settings that the space would never offer."""
    data = json.loads(launch.files[PLAN])
    data["serve"] = [json.dumps(json.loads(word) | settings) if word.startswith('{"') else word for word in data["serve"]]
    return {PLAN: json.dumps(data)}


def settings_of(launch: Launch) -> dict[str, Any]:
    """What the server of a launch is told."""
    settings: dict[str, Any] = json.loads(next(word for word in json.loads(launch.files[PLAN])["serve"] if word.startswith('{"')))
    return settings
