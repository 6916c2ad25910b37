"""The training simulator predicts for the training backends, so that a study on GPUs does not begin blind."""

from __future__ import annotations

from typing import Any

import pytest

from autoscout.backends.deepspeed import DeepSpeedBackend
from autoscout.backends.megatron import MegatronBackend
from autoscout.backends.pytorch import PyTorchBackend
from autoscout.core.config import Config
from autoscout.simulators.training.model import TrainingModel
from autoscout.study.start import find_simulator

KINDS = [PyTorchBackend, DeepSpeedBackend, MegatronBackend]
GPUS = {"gpus": "4xA100-40", "cores": 16}


def predicted(backend: Any, given: dict[str, Any], *wanted: dict[str, Any]) -> Any:
    task = backend.task(given)
    space = backend.space(task)
    configs = [space.project({**space.default(), **one}, Config(one)) for one in wanted]
    return TrainingModel().predict(configs, task)


@pytest.mark.parametrize("kind", KINDS)
def test_a_simulator_is_found_for_gpus_and_not_for_processors(kind: Any) -> None:
    backend = kind()
    task = backend.task({"workload": {"model": "gpt-1b", "global_batch": 64}, "hardware": GPUS})
    assert (task.hardware["gpu"], task.hardware["gpus"], task.hardware["memory_gb"]) == ("A100-40", 4, 40.0)
    assert find_simulator(backend.space(task), task) == "training"
    task = backend.task({"workload": {"model": "tiny"}, "hardware": {"device": "cpu", "gpus": 0, "processes": 2}})
    assert find_simulator(backend.space(task), task) == ""


@pytest.mark.parametrize("kind", KINDS)
def test_what_does_not_fit_is_predicted(kind: Any) -> None:
    given = {"workload": {"model": "gpt-350m", "global_batch": 256}, "hardware": GPUS}
    small, large = predicted(kind(), given, {"micro_batch": 1}, {"micro_batch": 64}).feasible
    assert small > 0.5 > large


def test_sharding_is_predicted_to_save_memory() -> None:
    given = {"workload": {"model": "gpt-1b", "sequence": 4096, "global_batch": 128}, "hardware": {**GPUS, "gpus": "4xT4"}}
    replicas, sharded = predicted(
        PyTorchBackend(), given, {"dp": 4, "data_parallel": "ddp", "micro_batch": 1}, {"dp": 4, "data_parallel": "fsdp2", "micro_batch": 1}
    ).feasible
    assert replicas < sharded


def test_a_model_of_the_catalogue_needs_no_gpu_to_be_laid_out() -> None:
    given = {"workload": {"model": "llama-3.1-8b", "global_batch": 128}, "hardware": {"gpus": "8xA100-80", "cores": 16}}
    whole, split = predicted(MegatronBackend(), given, {"tp": 1, "pp": 1, "dp": 8}, {"tp": 8, "dp": 1}).feasible
    assert whole < 0.5 < split
