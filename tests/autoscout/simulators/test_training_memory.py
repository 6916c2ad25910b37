from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from _jobs import job

from autoscout.core.config import Config
from autoscout.core.task import Objective, Task
from autoscout.simulators.training.calibration import training_calibration
from autoscout.simulators.training.job import ParallelLayout, TrainingJob
from autoscout.simulators.training.memory import MemoryConstants, feasible, step_memory
from autoscout.simulators.training.model import TrainingModel

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
    gradients = 1024 * 8 * 1024 * (2 + 2 + 4)  # of the scores of one layer, before and after the softmax, and a 4-byte copy
    assert value(memory.activations_bytes) == pytest.approx(4 * per_layer + gradients)


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
    # all words on every rank, the parts that were gathered, and all of them in one
    words = value(plain.logits_bytes) / BARE.logit_bytes
    assert value(gathered.logits_bytes) == pytest.approx(4 * words * (BARE.logit_bytes + BARE.gathered_bytes))


def test_a_loss_that_works_in_place_takes_a_third() -> None:
    plain, fused = (value(step_memory(job(ParallelLayout(loss_fused=kind)), BARE).logits_bytes) for kind in (0.0, 1.0))
    assert fused / plain == pytest.approx(BARE.fused_logit_bytes / BARE.logit_bytes) == pytest.approx(1 / 3)


def test_a_gated_activation_of_separate_kernels_keeps_one_more_product() -> None:
    gated = [value(step_memory(job(ParallelLayout(act_fused=kind), ffn_matrices=3.0), BARE).activations_bytes) for kind in (0.0, 1.0)]
    assert gated[0] - gated[1] == pytest.approx(4 * 1024 * 2 * 4096)
    plain = [value(step_memory(job(ParallelLayout(act_fused=kind)), BARE).activations_bytes) for kind in (0.0, 1.0)]
    assert plain[0] == plain[1]


@pytest.mark.parametrize("stack", ["megatron", "megatron-deepspeed", "torchtitan", "transformers", "nobody's"])
def test_all_software_is_counted_alike(stack: str) -> None:
    """What differs is what a layout says: constants of single stacks were wrong on every other source."""
    assert training_calibration(stack).memory == MemoryConstants()


@pytest.mark.parametrize("knobs", [{"peft": "lora"}, {"method": "lora"}, {"trained_share": 0.005}])
def test_adapters_of_a_70b_fit_where_all_weights_do_not(knobs: dict[str, Any]) -> None:
    """NVIDIA publishes this run: LoRA on Llama 70B, 8 H100."""
    workload = {"model": "llama-3-70b", "sequence": 4096, "global_batch": 32}
    asked = Task(system="nemo", objective=Objective(metric="step_s"), workload=workload, hardware={"gpus": "8xH100"})
    layout = {"tp": 2, "pp": 4, "vp": 20, "mbs": 1, "sp": True}
    whole, adapters = TrainingModel().predict([Config({**layout, "trained_share": 1.0}), Config(layout | knobs)], asked).feasible
    assert whole < 0.05
    assert adapters > 0.5


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
    assert chances[1] < 0.6  # activations: it is hardly


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
