"""A deep model from two shallow ones."""

from __future__ import annotations

from typing import Any

import pytest

from autoscout.backends.pytorch import PyTorchBackend
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.trial import Fidelity
from autoscout.training.steps import extrapolated

CPU = {"device": "cpu", "gpus": 0, "processes": 4, "cores": 4, "native_bf16": False, "memory_gb": 16.0}
SPENT = {"start_s": 1.0, "warm_up_s": 2.0, "measure_s": 3.0}


def result(step_ms: float, gib: float, tokens: float = 1000.0) -> dict[str, Any]:
    metrics = {"step_ms": step_ms, "peak_mem_gib": gib, "tokens_per_s": tokens / step_ms * 1000, "loss_after": 5.0}
    return {"metrics": metrics, "samples": {"step_ms": [step_ms]}, "curves": {"loss": [5.0], "tokens": [tokens]}, "spent": SPENT}


def test_time_and_memory_grow_by_the_layer() -> None:
    found = extrapolated([result(100.0, 1.0), result(140.0, 1.5)], [2, 4], 24)
    assert found["metrics"] == pytest.approx({"step_ms": 540.0, "peak_mem_gib": 6.5, "tokens_per_s": 1000 / 0.540})
    assert found["spent"] == {"start_s": 2.0, "warm_up_s": 4.0, "measure_s": 6.0}


def test_noise_does_not_make_layers_free() -> None:
    found = extrapolated([result(100.0, 1.0), result(90.0, 0.9)], [2, 4], 24)
    assert found["metrics"]["step_ms"] == 90.0


def test_shallow_studies_are_never_called_measured() -> None:
    backend = PyTorchBackend()
    task = backend.task({"workload": {"depths": [2, 4]}, "hardware": CPU})
    assert backend.fidelity(task) is Fidelity.SIMULATED
    assert backend.fidelity(backend.task({"workload": {}, "hardware": CPU})) is Fidelity.MEASURED
    assert not backend.space(task).feasible(Config(pp=4)), "the shallower model has no four stages"


@pytest.mark.parametrize("depths", [[2], [4, 2], [0, 2], [2, 99]])
def test_depths_that_make_no_sense(depths: list[int]) -> None:
    with pytest.raises(ConfigError, match="two ascending numbers of layers"):
        PyTorchBackend().task({"workload": {"depths": depths}, "hardware": CPU})
