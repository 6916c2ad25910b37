"""The training model against arithmetic done by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from _jobs import ATTENTION_FLOP, LINEAR_FLOP, LOGITS_FLOP, PLAIN, job

from autoscout.simulators.training.constants import TrainingConstants
from autoscout.simulators.training.job import ParallelLayout
from autoscout.simulators.training.links import collective_s, exchange_s, send_s
from autoscout.simulators.training.step import StepTime, stage_params, step_time

LAYER_S = (3 * LINEAR_FLOP + 3.5 * ATTENTION_FLOP) / 1e12
LOGITS_S = 3 * LOGITS_FLOP / 1e12


def total(time: StepTime) -> float:
    return float(np.asarray(time.total_s))


def test_one_gpu_is_pure_arithmetic() -> None:
    assert total(step_time(job(), PLAIN)) == pytest.approx(8 * (4 * LAYER_S + LOGITS_S))


def test_parts_add_up_to_the_total() -> None:
    layouts = [
        ParallelLayout(),
        ParallelLayout(tp=2.0, pp=2.0, dp=2.0, recompute=1.0, sequence_parallel=1.0),
        ParallelLayout(dp=8.0, zero=3.0),
        ParallelLayout(tp=2.0, cp=2.0, dp=2.0, attention=1.0, selective=1.0, zero=1.0),
        ParallelLayout(pp=4.0, virtual_stages=1.0, dp=2.0, micro_batch=2.0),
    ]
    constants = replace(PLAIN, element_bytes=20.0, layer_host_s=1e-3, layer_gap_s=1e-4, step_host_s=1e-2, optimizer_bytes=50.0)
    for layout in layouts:
        time = step_time(job(layout, memory_rate=1e12), constants)
        assert sum(float(np.asarray(part)) for part in time.parts().values()) == pytest.approx(total(time))


def test_full_recomputation_adds_one_forward_of_the_layers() -> None:
    plain = total(step_time(job(), PLAIN))
    again = total(step_time(job(ParallelLayout(recompute=1.0)), PLAIN))
    assert again - plain == pytest.approx(8 * 4 * (LINEAR_FLOP + ATTENTION_FLOP) / 1e12)


def test_selective_recomputation_adds_the_attention_core() -> None:
    plain = total(step_time(job(), PLAIN))
    again = total(step_time(job(ParallelLayout(selective=1.0)), PLAIN))
    assert again - plain == pytest.approx(8 * 4 * ATTENTION_FLOP / 1e12)


def test_pipeline_fill() -> None:
    # two stages of two layers; the last one also has the logits; 8 micro-batches
    slow, quick = 2 * LAYER_S + LOGITS_S, 2 * LAYER_S
    time = step_time(job(ParallelLayout(pp=2.0), bus_rate=1e30), PLAIN)
    assert total(time) == pytest.approx(8 * slow + quick)


def test_interleaving_divides_the_fill() -> None:
    plain = step_time(job(ParallelLayout(pp=2.0, vocab_multiple=1.0), bus_rate=1e30, vocab=1e-6), PLAIN)
    woven = step_time(job(ParallelLayout(pp=2.0, virtual_stages=2.0, vocab_multiple=1.0), bus_rate=1e30, vocab=1e-6), PLAIN)
    assert float(np.asarray(plain.bubble_s)) == pytest.approx(2 * LAYER_S)
    assert float(np.asarray(woven.bubble_s)) == pytest.approx(LAYER_S)


def test_data_parallel_all_reduce_without_overlap() -> None:
    layout = ParallelLayout(dp=4.0, gradient_bytes=2.0, bucket_mb=1e9)
    time = step_time(job(layout), PLAIN)
    params = 4 * 12 * 1024**2 + 1024 * 1024
    expected = 2 * 3 / 4 * params * 2 / 1e9
    assert float(np.asarray(time.data_parallel_s)) == pytest.approx(expected, rel=1e-3)


def test_overlap_hides_gradients_but_for_the_last_bucket() -> None:
    layout = ParallelLayout(dp=4.0, gradient_bytes=2.0, bucket_mb=10.0)
    shown = float(np.asarray(step_time(job(layout, bus_rate=1e12), PLAIN).data_parallel_s))
    hidden = float(np.asarray(step_time(job(layout, bus_rate=1e12), replace(PLAIN, dp_overlap=1.0)).data_parallel_s))
    buckets = np.ceil((4 * 12 * 1024**2 + 1024 * 1024) * 2 / 10e6)
    assert hidden == pytest.approx(shown / buckets)


def test_tensor_parallel_traffic() -> None:
    time = step_time(job(ParallelLayout(tp=2.0), vocab=1e-6), PLAIN)
    message = 2 * 1024 * 1024  # bytes of one activation
    # two all-reduces forward, two backward, of 2 (n-1)/n messages, per layer and micro-batch
    assert float(np.asarray(time.tensor_parallel_s)) == pytest.approx(8 * 4 * 4 * message / 1e9)


def test_the_host_sets_a_floor() -> None:
    time = step_time(job(), replace(PLAIN, layer_host_s=1.0))
    assert total(time) == pytest.approx(8 * (4 * 3.0 + LOGITS_S), rel=1e-3)
    compiled = step_time(job(ParallelLayout(compiled=1.0)), replace(PLAIN, layer_host_s=1.0))
    assert total(compiled) < 0.5 * total(time)


def test_a_group_larger_than_a_node_uses_the_network() -> None:
    one = job(node_gpus=4.0)
    inside = float(collective_s(1e9, np.float64(4), 2.0, 1.0, one, PLAIN))
    across = float(collective_s(1e9, np.float64(8), 2.0, 1.0, one, PLAIN))
    assert inside == pytest.approx(2 * 3 / 4)
    assert across == pytest.approx(inside + 2 * 1 / 2 * 0.25e9 / 1e8)  # a quarter each over two nodes
    assert float(send_s(1e8, 4.0, one, PLAIN)) == pytest.approx(1.0)
    assert float(send_s(1e8, 1.0, one, PLAIN)) == pytest.approx(0.1)


def test_experts_split_over_expert_parallel_ranks() -> None:
    shape = {"experts": 8.0, "active_experts": 2.0, "expert_ffn": 512.0, "moe_layers": 4.0}
    dense, experts = stage_params(job(ParallelLayout(ep=4.0, dp=4.0), **shape), 4.0)
    assert float(np.asarray(experts)) == 4 * 2 * 1024 * 512 * 8 / 4
    assert float(np.asarray(dense)) == 4 * 4 * 1024**2 + 1024 * 1024


def test_moe_costs_what_its_active_experts_cost() -> None:
    shape = {"experts": 8.0, "active_experts": 2.0, "expert_ffn": 2048.0, "moe_layers": 4.0}
    sparse = total(step_time(job(**shape), replace(PLAIN, expert_share=1.0)))
    assert sparse == pytest.approx(total(step_time(job(), PLAIN)))  # two of 2048 are as one of 4096


def test_expert_exchange_grows_with_expert_parallelism() -> None:
    shape = {"experts": 8.0, "active_experts": 2.0, "expert_ffn": 2048.0, "moe_layers": 4.0}
    alone = step_time(job(ParallelLayout(dp=4.0), **shape), PLAIN)
    spread = step_time(job(ParallelLayout(dp=4.0, ep=4.0), **shape), PLAIN)
    assert float(np.asarray(alone.expert_parallel_s)) == 0.0
    moved = 2 * 1024 * 2 * 1024 * 3 / 4 / 1e9  # bytes of one exchange over the bus
    assert float(np.asarray(spread.expert_parallel_s)) == pytest.approx(2 * 4 * 4 * moved)  # 2 micro-batches, 4 layers, 4 exchanges


def test_an_exchange_beyond_the_node_passes_the_network() -> None:
    one = job(node_gpus=4.0)
    assert float(exchange_s(1e9, 4.0, 1.0, one, PLAIN)) == pytest.approx(3 / 4)
    assert float(exchange_s(1e9, 8.0, 1.0, one, PLAIN)) == pytest.approx(4 / 8 * 1e9 / 1e8)  # half of it leaves the node, nothing is shared


def test_a_collective_is_cut_into_pieces() -> None:
    one = job(bus_latency_s=1e-3 / 0.38)
    # 1 ms to start and 1 s to carry: not their sum, but the square of the sum of their roots
    assert float(collective_s(1e9, 2.0, 2.0, 1.0, one, PLAIN)) == pytest.approx((1.0 + np.sqrt(1e-3)) ** 2)


def test_shallow_products_take_longer() -> None:
    deep = replace(PLAIN, inner_half=160.0)
    one = step_time(job(vocab=1e-6, layout=ParallelLayout(vocab_multiple=1.0)), PLAIN).gemm_s
    other = step_time(job(vocab=1e-6, layout=ParallelLayout(vocab_multiple=1.0)), deep).gemm_s
    # of 12 h^2 weights 8 are h deep and 4 are 4 h
    share = (8 * (1 + 160 / 1024) + 4 * (1 + 160 / 4096)) / 12 / (1 + 160 / 4096)
    assert float(other) == pytest.approx(share * float(one))


def test_an_odd_vocabulary_costs_what_alignment_saves() -> None:
    constants = replace(PLAIN, unaligned_cost=2.0)
    padded = total(step_time(job(ParallelLayout(vocab_multiple=128.0), vocab=1023.0), constants))
    assert padded == pytest.approx(total(step_time(job(), constants)))  # rounded up to 1024 words
    odd = total(step_time(job(ParallelLayout(vocab_multiple=1.0), vocab=1023.0), constants))
    assert odd - 8 * 4 * LAYER_S == pytest.approx(8 * 3.0 * LOGITS_S * 1023 / 1024)
    half = total(step_time(job(ParallelLayout(vocab_multiple=1.0), vocab=1020.0), constants))  # a multiple of 4: a seventh of the price
    assert half - 8 * 4 * LAYER_S == pytest.approx(8 * (1 + 2 / 7) * LOGITS_S * 1020 / 1024)


def test_one_number_and_many_give_the_same() -> None:
    rng = np.random.default_rng(5)
    names = ("tp", "pp", "dp", "cp", "ep", "micro_batch", "virtual_stages")
    shape = {"experts": 8.0, "active_experts": 2.0, "expert_ffn": 512.0, "moe_layers": 3.0, "shared_ffn": 256.0, "bus_latency_s": 1e-5}
    columns = {name: rng.choice([1.0, 2.0, 4.0], 40) for name in names}
    columns |= {name: rng.choice([0.0, 1.0], 40) for name in ("recompute", "selective", "sequence_parallel", "attention", "tp_overlap")}
    columns |= {"zero": rng.choice([0.0, 1.0, 3.0], 40), "bucket_mb": rng.choice([0.0, 8.0, 64.0], 40)}
    constants = TrainingConstants()
    together = step_time(job(ParallelLayout(**columns), memory_rate=1e12, **shape), constants)
    for row in range(40):
        one = step_time(
            job(ParallelLayout(**{name: float(part[row]) for name, part in columns.items()}), memory_rate=1e12, **shape), constants
        )
        assert isinstance(one.total_s, float)
        assert one.total_s == pytest.approx(float(together.total_s[row]), rel=1e-12)


def test_rows_do_not_touch_each_other() -> None:
    many = ParallelLayout(tp=np.array([1.0, 2.0, 4.0]), dp=np.array([8.0, 4.0, 2.0]), zero=np.array([0.0, 1.0, 3.0]))
    together = step_time(job(many), PLAIN).total_s
    for row, (tp, dp, zero) in enumerate(((1.0, 8.0, 0.0), (2.0, 4.0, 1.0), (4.0, 2.0, 3.0))):
        assert float(together[row]) == pytest.approx(total(step_time(job(ParallelLayout(tp=tp, dp=dp, zero=zero)), PLAIN)))


def test_more_communication_sms_slow_the_products() -> None:
    constants = replace(PLAIN, tp_overlap=1.0)
    few = step_time(job(ParallelLayout(tp=2.0, tp_overlap=1.0, tp_comm_sms=12.0), bus_rate=2e10), constants)
    many = step_time(job(ParallelLayout(tp=2.0, tp_overlap=1.0, tp_comm_sms=40.0), bus_rate=2e10), constants)
    assert float(np.asarray(few.gemm_s)) < float(np.asarray(many.gemm_s))
