from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from _jobs import job

from autoscout.simulators.training.job import ParallelLayout, TrainingJob
from autoscout.simulators.training.memory import MemoryConstants, feasible, step_memory

BARE = MemoryConstants(norm_bytes=0.0, fixed_bytes=0.0, fragment_share=0.0)
PARAMS = 4 * 12 * 1024**2 + 1024 * 1024


def value(part: object) -> float:
    return float(np.asarray(part))


def test_states_without_sharding() -> None:
    memory = step_memory(job(ParallelLayout(gradient_bytes=4.0)), BARE)
    assert value(memory.weights_bytes) == 2 * PARAMS
    assert value(memory.gradients_bytes) == 4 * PARAMS
    assert value(memory.optimizer_bytes) == 12 * PARAMS


@pytest.mark.parametrize(("stage", "per_parameter"), [(1.0, 2 + 2 + 12 / 8), (2.0, 2 + 14 / 8)])
def test_zero_divides_by_the_group(stage: float, per_parameter: float) -> None:
    memory = step_memory(job(ParallelLayout(dp=8.0, zero=stage, gradient_bytes=2.0)), BARE)
    states = value(memory.weights_bytes) + value(memory.gradients_bytes) + value(memory.optimizer_bytes)
    assert states == pytest.approx(per_parameter * PARAMS)


def test_activations_of_the_textbook() -> None:
    # s b h (34 + 5 a s / h) bytes per layer with plain attention; here 19 of the 34 are the feed-forward's 4 h wide parts
    memory = step_memory(job(ParallelLayout(attention=1.0)), BARE)
    per_layer = 1024 * 1024 * (10 + 8 + 16) + 1024 * 5 * 8 * 1024
    assert value(memory.activations_bytes) == pytest.approx(4 * per_layer)


def test_recomputation_keeps_inputs_only() -> None:
    memory = step_memory(job(ParallelLayout(recompute=1.0)), BARE)
    working = 1024 * 1024 * 34
    assert value(memory.activations_bytes) == pytest.approx(4 * 2 * 1024 * 1024 + working)


def test_the_first_stage_holds_all_micro_batches_in_flight() -> None:
    one = value(step_memory(job(ParallelLayout(pp=1.0)), BARE).activations_bytes)
    four = value(step_memory(job(ParallelLayout(pp=4.0)), BARE).activations_bytes)
    assert four == pytest.approx(one)  # a quarter of the layers, four times in flight


def test_sequence_parallelism_and_loss_parallelism_divide() -> None:
    plain = step_memory(job(ParallelLayout(tp=4.0)), BARE)
    split = step_memory(job(ParallelLayout(tp=4.0, sequence_parallel=1.0)), BARE)
    assert value(split.activations_bytes) < value(plain.activations_bytes)
    gathered = step_memory(job(ParallelLayout(tp=4.0, loss_parallel=0.0)), BARE)
    assert value(gathered.logits_bytes) == pytest.approx(4 * value(plain.logits_bytes))


def test_feasibility_falls_with_the_need_and_keeps_a_margin() -> None:
    constants = MemoryConstants()
    need = value(step_memory(job(), constants).total_bytes)
    sizes = need * np.array([0.5, 1.0, 1.1, 1.5, 3.0])
    chances = [value(feasible(step_memory(job(memory_bytes=size), constants), job(memory_bytes=size), constants)) for size in sizes]
    assert chances == sorted(chances)
    assert chances[1] < 0.5 < chances[3]
    assert chances[-1] > 0.99


def test_a_larger_margin_is_safer() -> None:
    one = job(memory_bytes=4.5e9)
    memory = step_memory(one, MemoryConstants())
    assert value(feasible(memory, one, replace(MemoryConstants(), margin=0.6))) < value(feasible(memory, one, MemoryConstants()))


def test_what_can_be_counted_needs_no_margin() -> None:
    constants = MemoryConstants()
    heavy, light = job(ParallelLayout(recompute=1.0), sequence=64.0, layers=400.0), job(sequence=65536.0)
    chances = [
        _chance(replace(asked, memory_bytes=1.1 * value(step_memory(asked, constants).total_bytes)), constants) for asked in (heavy, light)
    ]
    assert chances[0] > 0.9  # weights and state: a tenth more than needed is plenty
    assert chances[1] < 0.5  # activations: it is not


def _chance(asked: TrainingJob, constants: MemoryConstants) -> float:
    return value(feasible(step_memory(asked, constants), asked, constants))


def test_adapters_train_few_weights_of_a_quantised_model() -> None:
    full, lora = job(ParallelLayout()), job(ParallelLayout(trained_share=0.01))
    narrow = step_memory(job(ParallelLayout(trained_share=0.01, base_bytes=0.53)), BARE)
    assert value(step_memory(lora, BARE).optimizer_bytes) == pytest.approx(0.01 * value(step_memory(full, BARE).optimizer_bytes))
    assert value(narrow.weights_bytes) == pytest.approx((0.01 * 2.0 + 0.99 * 0.53) * PARAMS)


def test_inputs_of_narrow_layers_are_kept_in_one_byte_where_the_stack_does_so() -> None:
    wide = value(step_memory(job(ParallelLayout(norm_fused=1.0, linear_bytes=1.0)), BARE).activations_bytes)
    narrow = value(step_memory(job(ParallelLayout(norm_fused=1.0, narrow_inputs=1.0, linear_bytes=1.0)), BARE).activations_bytes)
    assert wide - narrow == pytest.approx(4 * 1024 * (2 * 1024 - 8 * 128 + 4096))  # two norms and the activation, less a second copy


def test_what_is_computed_again_is_not_kept() -> None:
    kept = value(step_memory(job(ParallelLayout(norm_fused=1.0)), BARE).activations_bytes)
    for field, bytes_ in (
        ("again_norms", 4 * 1024),
        ("again_activations", 2 * 4096),
        ("again_heads", 2 * 24 * 128),
        ("again_dense", 4 * 4096),
    ):
        less = value(step_memory(job(ParallelLayout(norm_fused=1.0, **{field: 1.0})), BARE).activations_bytes)
        assert kept - less == pytest.approx(4 * 1024 * bytes_), field
