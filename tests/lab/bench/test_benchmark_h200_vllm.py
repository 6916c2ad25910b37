"""`benchmarks.h200_vllm` rehearsed on a virtual clock, with a server that starts and serves about as vLLM does on an H200."""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autoscout.core.clock import VirtualClock
from autoscout.core.launch import Completed, Launch
from autoscout.core.seeds import stream
from autoscout.core.to_beat import ToBeat
from autoscout.study import assemble

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))

from benchmarks import h200_vllm  # noqa: E402

GPU = {"gpus": 1, "gpu": "H200", "gpu_memory_gb": 139.8, "cores": 16}
SHAPE = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 32000,
    "max_position_embeddings": 131072,
}


class KilledError(Exception):
    """The machine went away."""


class Done:
    """A job that has ended."""

    def __init__(self, completed: Completed) -> None:
        self._completed = completed

    def result(self, timeout: float | None = None) -> Completed:
        return self._completed

    def done(self) -> bool:
        return True

    def cancel(self) -> bool:
        return False


class Machine:
    """Runs trials by a formula: a first start takes 80 to 110 s, a later one 53 to 80, a search for the capacity 45 to 75."""

    slots = 1

    def __init__(self, clock: VirtualClock, last: int) -> None:
        self._clock, self._last = clock, last
        self._known: set[str] = set()
        self._launches = 0

    def close(self) -> None: ...

    def submit(self, launch: Launch) -> Done:
        if self._launches >= self._last:
            raise KilledError
        draw = stream(1, "tests", "H200", self._launches)
        self._launches += 1
        plan = json.loads(launch.files["plan.json"])
        line = " ".join(plan["serve"])
        capacity = float(self._capacity(line, "p99_itl_ms" in str(plan["goal"]["slo"])) * (1 + 0.08 * draw.standard_normal()))
        to_beat = ToBeat.here(launch.env)
        bound = to_beat.value if to_beat is not None and to_beat.value and to_beat.value > capacity else None
        start_s = float(draw.uniform(53, 80) if line in self._known else draw.uniform(80, 110))
        measure_s = 6.0 if bound else float(draw.uniform(45, 75))
        self._known.add(line)
        self._clock.sleep(start_s + measure_s + 6)
        metrics = {"mean_logprob_error": 0.01, "token_agreement": 0.98, "p99_itl_ms": 39.0, "p95_ttft_ms": 150.0, "p95_tpot_ms": 22.0}
        spent = {"start_s": start_s, "warm_up_s": 2.0, "measure_s": measure_s}
        told = {"bounds": {"capacity_rps": bound}, "metrics": metrics} if bound else {"metrics": {"capacity_rps": capacity, **metrics}}
        return Done(Completed(returncode=0, outputs={"result.json": json.dumps({**told, "spent": spent})}, wall_s=start_s + measure_s + 6))

    def _capacity(self, line: str, tight: bool) -> float:
        small, fp8 = "--max-num-batched-tokens 1024" in line, "--quantization fp8" in line
        if tight:
            return {(False, False): 18.0, (True, False): 23.5, (False, True): 26.0, (True, True): 30.0}[small, fp8]
        return 38.0 if fp8 else 23.5


@pytest.fixture
def rehearse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(SHAPE))
    plain = h200_vllm.campaign
    monkeypatch.setattr(h200_vllm, "campaign", lambda *asked: {**plain(*asked), "hardware": GPU})
    study = assemble.Study

    def measure(*studies: str, wall: str, last: int = 1000) -> dict[str, Any]:
        clock = VirtualClock(1000.0)
        monkeypatch.setattr(h200_vllm, "CLOCK", clock)
        monkeypatch.setattr(assemble, "Study", functools.partial(study, clock=clock))
        monkeypatch.setattr(assemble, "build_executor", lambda *_: Machine(clock, last))
        asked = {"model": tmp_path / "model", "out": tmp_path / "out", "engine": "vllm serve", "engine_version": "0.24.0", "env": []}
        return h200_vllm.measure(argparse.Namespace(studies=studies, wall=wall, rounds=3, search_limit_s=60.0, **asked))

    return measure


def test_two_studies_share_the_time_and_each_ends_with_an_interval(rehearse: Callable[..., dict[str, Any]]) -> None:
    found = rehearse("tight", "lossy", wall="44m")
    for name in ("tight", "lossy"):
        study = found["studies"][name]
        assert study["gain"]["pairs"] == 3
        assert study["gain"]["low"] > 1.0
        assert study["wall_s"] <= study["budget_s"]
        assert study["trials"]["search"] >= 2
        assert "quantization" in {change["knob"] for change in study["changes"]}
    assert found["studies"]["lossy"]["budget_s"] > 22 * 60, "what the first study left is the second's"
    text = h200_vllm.page(found)
    assert "98% of tokens agree, at most 0.010 nats off" in text
    assert "fp8 weights and cache allowed" in text
    assert "Not measured yet" in text, "there was no study without fp8"


def test_without_a_gain_the_study_says_so(rehearse: Callable[..., dict[str, Any]]) -> None:
    study = rehearse("lossless", wall="22m")["studies"]["lossless"]
    assert study["verdict"] == "not decided"
    assert 15 * 60 < study["wall_s"] <= 22 * 60, "no time is kept back for a final that nobody is in"


def test_what_was_measured_is_kept_when_the_machine_goes_away(rehearse: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    with pytest.raises(KilledError):
        rehearse("lossy", wall="22m", last=4)
    found = json.loads((tmp_path / "out" / h200_vllm.RESULT).read_text())
    assert len(found["studies"]["lossy"]["trial_rows"]) == 4
    assert "not finished" in h200_vllm.page(found)
    again = rehearse("lossy", wall="22m")["studies"]["lossy"]
    assert again["gain"]["pairs"] == 3
    assert "not finished" not in h200_vllm.page({**found, "studies": {"lossy": again}})
