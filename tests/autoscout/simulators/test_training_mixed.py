"""Clusters of several kinds of GPU: who holds what, times and memory worked by hand, and what must hold for any mix."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _jobs import ATTENTION_FLOP, LINEAR_FLOP, LOGITS_FLOP, PLAIN

from autoscout.catalog.gpus import Cluster, GpuKind
from autoscout.catalog.models import ModelShape
from autoscout.core.config import Config
from autoscout.core.seeds import stream
from autoscout.core.task import Objective, Task
from autoscout.simulators.training import TrainingModel
from autoscout.simulators.training.calibration import TrainingCalibration
from autoscout.simulators.training.memory import MemoryConstants
from autoscout.simulators.training.mixed import MixedAnswer, mixed_step
from autoscout.simulators.training.read import TrainingTask, read_layout

SHAPE = ModelShape(name="toy", layers=4, hidden=1024, heads=8, kv_heads=8, head_size=128, ffn=4096, gated=False, vocab=1024, tied=True)
FAST = GpuKind(
    name="Fast-1",
    bf16_tflops=2.0,
    memory_gb=80,
    memory_gbps=1e9,
    gemm=1.0,
    memory=1.0,
    bus=1.0,
    scaleup_gbps=1.0,
    nic_gbps=0.1,
    latency_us=1e-9,
    node_gpus=8,
)
SLOW = replace(FAST, name="Slow-1", bf16_tflops=1.0, memory_gb=40)
MEMORY = MemoryConstants(fixed_bytes=0.0, fragment_share=0.0)
LAYER_FLOP = 3 * LINEAR_FLOP + 3.5 * ATTENTION_FLOP
"""Forward and backward of one layer, one sequence."""


def asked(*groups: tuple[GpuKind, int], configs: list[dict[str, Any]], batch: float = 8.0) -> MixedAnswer:
    reading = TrainingTask(shape=SHAPE, cluster=Cluster(groups=groups), sequence=1024.0, global_batch=batch, fixed={})
    layout = read_layout(configs, {}, float(reading.cluster.gpus), zero=0.0)
    return mixed_step(reading, configs, layout, TrainingCalibration(name="by hand", constants=PLAIN), MEMORY)


def test_groups_of_two_kinds_are_refused() -> None:
    model = TrainingModel()
    found = model.predict([Config(tp=4, pp=3, dp=1), Config(tp=6, pp=2, dp=1)], task("8xA100-80+4xA40"))
    assert found.feasible[0] > 0.5
    assert found.feasible[1] == 0.0


def test_a_pipeline_over_two_kinds_by_hand() -> None:
    answer = asked((FAST, 1), (SLOW, 1), configs=[{"pp": 2, "slow_share": 0.5}, {"pp": 2}])
    fast_s, slow_s, head_s = LAYER_FLOP / 2e12, LAYER_FLOP / 1e12, 3 * LOGITS_FLOP / 1e12
    # a send of 1024 x 1024 x 2 bytes over 0.1 GB/s; half of 8 micro-batches and one hop more, both ways
    sends_s = (0.5 * 8 + 1) * 2 * 2 * 1024 * 1024 / 1e8
    three_and_one = 8 * max(3 * fast_s, slow_s + head_s) + min(3 * fast_s, slow_s + head_s)
    two_and_two = 8 * (2 * slow_s + head_s) + 2 * fast_s
    assert answer.time.total_s == pytest.approx([three_and_one + sends_s, two_and_two + sends_s], rel=1e-9)
    parts = answer.time.parts()
    assert sum(parts.values()) == pytest.approx(answer.time.total_s, rel=1e-12)
    assert parts["pipeline_s"] == pytest.approx(sends_s)


def test_replicas_of_two_kinds_by_hand() -> None:
    answer = asked((FAST, 2), (SLOW, 1), configs=[{"dp": 3, "slow_share": 0.5}, {"dp": 3}], batch=15.0)
    one_s = 4 * LAYER_FLOP / 1e12 + 3 * LOGITS_FLOP / 1e12
    parameters = 4 * 12 * 1024**2 + 1024 * 1024
    # replicas of two kinds share no node: rings over 3 ranks of the network
    ring_s = 2 * 2 / 3 * 4 * parameters / 1e8
    ring_s *= 1 + 4e6 / min(4 * parameters, 1.6e8)
    busy_s = answer.time.total_s - answer.time.data_parallel_s
    assert busy_s == pytest.approx([max(6 * one_s / 2, 3 * one_s), 5 * one_s], rel=1e-9)
    assert answer.time.data_parallel_s == pytest.approx([ring_s, ring_s], rel=1e-9)


def test_memory_is_counted_for_each_kind() -> None:
    thin = replace(SLOW, memory_gb=1)
    answer = asked((FAST, 2), (thin, 1), configs=[{"pp": 3, "slow_share": 0.2}, {"pp": 3}])
    assert answer.capacity_bytes == pytest.approx(thin.memory_bytes)  # the small one is tighter either way
    layer, head = 12 * 1024**2, 1024 * 1024
    # 4 layers by 1 : 1 : 0.2 are 2, 1, 1 and by 1 : 1 : 1 the same; the last stage keeps one micro-batch and the logits
    assert answer.memory.weights_bytes == pytest.approx(2 * (layer + head))
    assert answer.memory.optimizer_bytes == pytest.approx(12 * (layer + head))
    assert answer.memory.logits_bytes == pytest.approx(1024 * 1024 * 12.0)
    (early,) = asked((thin, 2), (FAST, 1), configs=[{"pp": 3}]).memory.weights_bytes
    assert early == pytest.approx(2 * (2 * layer + head))


def task(gpus: str, path: Path | None = None, **workload: Any) -> Task:
    load = {"model": "llama-3.2-3b", "sequence": 2048, "global_batch": 96, **workload}
    hardware = {"gpus": gpus, **({"hardware_file": str(path)} if path else {})}
    return Task(system="megatron", objective=Objective(metric="step_s"), workload=load, hardware=hardware)


KINDS = """gpus:
  One: &kind {bf16_tflops: 200, memory_gb: 64, memory_gbps: 1500, scaleup_gbps: 200, node_gpus: 8, nic_gbps: 25}
  Two: *kind
"""


@pytest.mark.parametrize("model", ["llama-3.2-3b", "qwen3-30b-a3b"])
def test_equal_gpus_are_as_one_kind(tmp_path: Path, model: str) -> None:
    path = tmp_path / "gpus.yaml"
    path.write_text(KINDS)
    configs = [
        Config(tp=tp, pp=pp, dp=16 // (tp * pp), mbs=mbs, sp=tp > 1, ar=ar, ep=ep)
        for tp, pp, mbs, ar, ep in product((1, 2, 8), (1, 2), (1, 2), ("none", "full"), (1, 2))
    ]
    simulator = TrainingModel()
    whole, halves = (task(gpus, path, model=model) for gpus in ("16xOne", "8xOne+8xTwo"))
    one, two = simulator.answer(configs, whole), simulator.answer(configs, halves)
    assert np.broadcast_to(one.time.total_s, (len(configs),)) == pytest.approx(two.time.total_s, rel=1e-12)
    for name, seconds in one.time.parts().items():
        assert two.time.parts()[name] == pytest.approx(np.broadcast_to(seconds, (len(configs),)), rel=1e-9, abs=1e-12), name
    assert two.memory.total_bytes == pytest.approx(np.broadcast_to(one.memory.total_bytes, (len(configs),)), rel=1e-12)
    assert two.feasible == pytest.approx(one.feasible, rel=1e-9)


def test_a_kind_that_is_not_used_does_not_count() -> None:
    simulator = TrainingModel()
    mixed, alone = task("8xA100-80+4xA40"), task("8xA100-80")
    for config in ({"tp": 2, "pp": 2, "dp": 2}, {"dp": 8, "mbs": 2, "ar": "full"}):
        with_both = simulator.predict([Config({**config, "a100": 8, "a40": 0})], mixed)
        with_one = simulator.predict([Config(config)], alone)
        assert with_both.value == pytest.approx(with_one.value, rel=1e-12)
        assert with_both.feasible == pytest.approx(with_one.feasible, rel=1e-12)
    assert simulator.predict([Config(a100=8, a40=0, dp=12)], mixed).feasible[0] == 0.0


def drawn(count: int) -> list[dict[str, Any]]:
    rng = stream(11, "mixed layouts")
    degrees = [(tp, pp, 12 // (tp * pp)) for tp, pp in product((1, 2, 4), (1, 2, 3, 6, 12)) if 12 % (tp * pp) == 0]
    found = []
    for _ in range(count):
        tp, pp, dp = degrees[int(rng.integers(len(degrees)))]
        found.append(
            {
                "tp": tp,
                "pp": pp,
                "dp": dp,
                "mbs": int(rng.choice([1, 2, 4])),
                "slow_share": float(rng.choice([0.3, 0.5, 0.8, 1.0])),
                "stages_inner": bool(rng.integers(2)),
                "ar": bool(rng.integers(2)),
            }
        )
    return found


def test_a_faster_or_larger_gpu_never_hurts() -> None:
    configs = drawn(200)
    small = replace(SLOW, memory_gb=0.5, memory_gbps=900.0, latency_us=20.0)
    plain = asked((FAST, 8), (small, 4), configs=configs, batch=48.0)
    better = {"bf16_tflops": 1.6, "memory_gbps": 2000.0, "scaleup_gbps": 5.0, "nic_gbps": 0.5, "memory_gb": 2.0}
    for name, value in better.items():
        found = asked((FAST, 8), (replace(small, **{name: value}), 4), configs=configs, batch=48.0)
        assert np.all(found.time.total_s <= plain.time.total_s * (1 + 1e-12)), name
        assert np.all(found.fits >= plain.fits - 1e-12), name
        if name == "bf16_tflops":
            assert np.any(found.time.total_s < 0.8 * plain.time.total_s)
    assert np.isfinite(plain.time.total_s).all()


def test_balance_pays() -> None:
    layouts = [{"dp": 12}, {"pp": 3, "dp": 4}, {"pp": 3, "tp": 4}, {"pp": 6, "dp": 2, "stages_inner": True}]
    even = TrainingModel().predict([Config(one) for one in layouts], task("8xA100-80+4xA40")).value
    fair = TrainingModel().predict([Config({**one, "a40_share": 0.4}) for one in layouts], task("8xA100-80+4xA40")).value
    assert np.all(fair < 0.85 * even)


def test_three_kinds_and_degrees_without_end() -> None:
    three = task("8xH100+8xA100-80+8xA40")
    odd = [Config(dp=10**9), Config(pp=10**9, tp=10**9), Config(dp=24, vp=10**9), Config(pp=50, dp=1)]
    configs = [Config(pp=3, dp=8, a100_share=0.4, a40_share=0.2), Config(pp=3, dp=8), *odd]
    found = TrainingModel().predict(configs, three)
    assert found.value[0] < found.value[1]
    assert found.feasible[0] > 0.9
    assert found.feasible[2:].tolist() == [0.0] * len(odd)
    assert np.isfinite(found.value).all()


def test_shares_need_whole_micro_batches_only() -> None:
    configs = [Config(dp=12, mbs=1), Config(dp=12, mbs=1, a40_share=0.5), Config(dp=12, mbs=3, a40_share=0.5)]
    found = TrainingModel().predict(configs, task("8xA100-80+4xA40", model="gpt3-1.3b", global_batch=100))
    assert found.feasible[0] == 0.0
    assert found.feasible[1] > 0.5
    assert found.feasible[2] == 0.0
