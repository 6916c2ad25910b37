"""What a study of an engine knows before it measures: the serving simulator is its prior, and says what cannot run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autoscout.core.config import Config
from autoscout.core.seeds import stream
from autoscout.core.trial import Measurement, Proposal, Status, Trial
from autoscout.study.assemble import build_searcher, build_simulator
from autoscout.study.campaign import build_campaign
from autoscout.study.setup import Setup, prepare
from autoscout.study.start import PRIOR, StartingPoint

ASKED = 3
SET = {"async_scheduling": True, "enable_prefix_caching": True, "gpu_memory_utilization": 0.92, "max_num_batched_tokens": 8192,
       "api_server_count": 0, "long_prefill_token_threshold": 0, "max_cudagraph_capture_size": 0}  # fmt: skip


@pytest.fixture
def setup() -> Setup:
    """A model of 141 GB on GPUs of 80: one of them cannot hold it. Few knobs, so that few configurations are predicted."""
    data: dict[str, Any] = {
        "system": "vllm",
        "workload": {"model": "meta-llama/Llama-3.3-70B-Instruct", "engine_version": "0.24.0"},
        "hardware": {"gpus": "4xH100", "cores": 16},
        "goal": {"slo": ["p95_ttft_ms<=500"]},
        "set": SET,
        "store": "memory:",
    }
    return prepare(build_campaign(data, where="test"))


def test_the_simulator_is_the_prior_of_a_known_gpu(setup: Setup) -> None:
    start = StartingPoint.decide(setup)
    assert (start.simulator, start.use, start.automatic) == ("serving", PRIOR, True)


def test_what_cannot_run_is_not_proposed_first(setup: Setup) -> None:
    start = StartingPoint.decide(setup)
    simulator, searcher = build_simulator(setup, start), build_searcher(setup, start)

    def chance(configs: list[Config]) -> np.ndarray[Any, np.dtype[np.float64]]:
        return simulator.predict(configs, setup.task).feasible

    drawn = [setup.space.sample(stream(number, "knowledge")) for number in range(60)]
    impossible = chance([config for config in drawn if config is not None]) < 0.5
    assert impossible.mean() > 0.2, "there is something to avoid"
    assert (chance([setup.default, *setup.first]) > 0.5).all()
    proposals = [Proposal(config=config) for config in (setup.default, *setup.first)]
    for number in range(ASKED + len(proposals)):
        proposal = proposals[number] if number < len(proposals) else searcher.ask(1)[0]
        (found,) = simulator.predict([proposal.config], setup.task).value
        told = Measurement(status=Status.OK, metrics={"capacity_rps": float(found)}, cost_s=60.0)
        assert chance([proposal.config])[0] > 0.5, f"proposed as number {number}: {proposal.config}"
        searcher.tell([Trial(proposal=proposal, measurement=told, number=number)])
