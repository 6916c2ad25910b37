"""No knob predicts a gain that it cannot have: the training simulator on questions whose answer physics knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autoscout.core.config import Config
from autoscout.core.task import Direction, Objective, Task
from autoscout.simulators.training.model import TrainingModel

DENSE, EXPERTS = "llama-3.1-8b", "qwen3-30b-a3b"
CASES = [(DENSE, "8xH100"), (DENSE, "8xA100-80"), (DENSE, "8xA40"), (EXPERTS, "16xH100"), (EXPERTS, "64xB200")]


def task(model: str, gpus: str) -> Task:
    objective = Objective(metric="step_s", direction=Direction.MINIMIZE)
    return Task(
        system="megatron", objective=objective, workload={"model": model, "sequence": 4096, "global_batch": 256}, hardware={"gpus": gpus}
    )


def step_s(model: str, gpus: str, **knobs: Any) -> float:
    return float(TrainingModel().predict([Config(knobs)], task(model, gpus)).value[0])


def chance_to_fit(model: str, gpus: str, **knobs: Any) -> float:
    return float(TrainingModel().predict([Config(knobs)], task(model, gpus)).feasible[0])


@pytest.mark.parametrize(("model", "gpus"), CASES)
@pytest.mark.parametrize("tp", [1, 2])
def test_wider_numbers_are_never_quicker_nor_smaller(model: str, gpus: str, tp: int) -> None:
    """A knob `precision` of the configuration counts, not only the task's."""
    layout = {"tp": tp, "pp": 1, "sequence_parallel": tp > 1, "micro_batch": 1}
    seconds = [step_s(model, gpus, **layout, precision=precision) for precision in ("fp8", "bf16", "fp32")]
    chances = [chance_to_fit(model, gpus, **layout, precision=precision) for precision in ("fp8", "bf16", "fp32")]
    assert seconds[0] <= seconds[1] < seconds[2]
    assert chances[0] >= chances[1] >= chances[2]


def test_twice_as_wide_numbers_take_about_twice_as_long() -> None:
    bf16, fp32 = (step_s(DENSE, "8xH100", tp=2, pp=1, sequence_parallel=True, precision=precision) for precision in ("bf16", "fp32"))
    assert 1.5 < fp32 / bf16 < 2.5


def test_precision_of_a_batch_of_configurations_is_read_one_by_one() -> None:
    configs = [Config({"tp": 2, "pp": 1, "precision": precision}) for precision in ("fp32", "bf16", "fp8", "bf16")]
    together = TrainingModel().predict(configs, task(DENSE, "8xH100")).value
    alone = [float(TrainingModel().predict([config], task(DENSE, "8xH100")).value[0]) for config in configs]
    assert together == pytest.approx(alone)


@pytest.mark.parametrize("gpus", ["16xH100", "16xA100-80"])
def test_cutting_experts_over_all_gpus_saves_no_work(gpus: str) -> None:
    """Ranks that share an expert compute for each other's tokens and have to exchange them, over the network too."""
    layout = {"tp": 1, "pp": 1, "dp": 16, "micro_batch": 1}
    whole = step_s(EXPERTS, gpus, **layout, ep=8, expert_tp=1)
    assert step_s(EXPERTS, gpus, **layout, ep=1, expert_tp=16) > 1.5 * whole
    assert step_s(EXPERTS, gpus, **layout, ep=2, expert_tp=8) > whole


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_products_of_experts_stay_the_same_however_they_are_cut(tp: int) -> None:
    """Cut experts have smaller matrices, so their products may take longer; never less, where they do not wait for memory."""
    model, layout = TrainingModel(), {"tp": tp, "pp": 1, "sequence_parallel": tp > 1, "micro_batch": 8, "ep": 2}
    configs = [Config({**layout, "expert_tp": cut}) for cut in (1, 2, 4, 8)]
    products_s = np.broadcast_to(model.answer(configs, task(EXPERTS, "16xH100")).time.gemm_s, (4,))
    assert (np.diff(products_s) >= -1e-9 * products_s[0]).all()


def test_exchanging_experts_rows_is_never_free() -> None:
    model, layout = TrainingModel(), {"tp": 1, "pp": 1, "dp": 16, "micro_batch": 1, "ep": 1}
    one, cut = model.answer(
        [Config({**layout, "expert_tp": 1}), Config({**layout, "expert_tp": 8})], task(EXPERTS, "16xH100")
    ).time.expert_parallel_s
    assert one == 0 < cut


def test_fused_attention_of_transformer_engine_is_linear_in_memory() -> None:
    """`attention_backend: fused` is cuDNN's kernel; in tables of other software `fused` is a fused softmax."""
    layout = {"tp": 2, "pp": 1, "sequence_parallel": True}
    flash, fused, unfused = (step_s(DENSE, "8xH100", **layout, attention_backend=name) for name in ("flash", "fused", "unfused"))
    assert flash == fused < unfused
    chances = [chance_to_fit(DENSE, "8xH100", **layout, attention_backend=name) for name in ("flash", "fused", "unfused")]
    assert chances[0] == chances[1] > chances[2]
    assert step_s(DENSE, "8xH100", **layout, attention="fused") > flash


def test_gradients_summed_in_two_bytes_take_half_the_memory() -> None:
    model, layout = TrainingModel(), {"tp": 1, "pp": 1, "dp": 8}
    wide, half = model.answer(
        [Config({**layout, "grad_reduce_in_bf16": half}) for half in (False, True)], task(DENSE, "8xH100")
    ).memory.gradients_bytes
    assert half == pytest.approx(wide / 2)
