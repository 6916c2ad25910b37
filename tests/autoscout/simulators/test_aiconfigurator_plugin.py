from __future__ import annotations

import importlib.util

import pytest

from autoscout.core import plugins
from autoscout.core.config import Config
from autoscout.core.errors import PluginError
from autoscout.core.task import Objective, Task
from autoscout.core.trial import Measurement, Proposal, Status, Trial

INSTALLED = importlib.util.find_spec("aiconfigurator") is not None


@pytest.mark.skipif(INSTALLED, reason="aiconfigurator is installed here")
def test_without_its_package_the_extra_is_named() -> None:
    with pytest.raises(PluginError, match=r"autoscout\[aiconfigurator\]"):
        plugins.get("simulator", "aiconfigurator")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.adapters
def test_it_answers_and_learns_a_scale() -> None:
    model = plugins.get("simulator", "aiconfigurator")()
    task = Task(
        system="vllm",
        objective=Objective(metric="mean_tpot_ms"),
        workload={"model": "Qwen/Qwen3-32B", "isl": 1024, "osl": 256, "concurrency": 16},
        hardware={"gpus": "8xH100"},
    )
    configs = [Config(tp=2, dp=1), Config(tp=4, dp=1)]
    before = model.predict(configs, task)
    assert before.value[0] > before.value[1] > 0
    measured = Measurement(status=Status.OK, metrics={"mean_tpot_ms": float(before.value[0]) * 1.5})
    model.fit([Trial(proposal=Proposal(config=configs[0]), measurement=measured)], task)
    assert model.predict(configs, task).value == pytest.approx(before.value * 1.5)
    unknown = Task(
        system="vllm",
        objective=Objective(metric="mean_tpot_ms"),
        workload={"model": "llama-2-7b", "isl": 64, "osl": 64, "concurrency": 1},
        hardware={"gpus": "1xA40"},
    )
    assert model.predict([Config(tp=1)], unknown).known.tolist() == [0.0]
