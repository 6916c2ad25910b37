from __future__ import annotations

import numpy as np
import pytest

from autoscout.core import plugins
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.protocols import Simulator
from autoscout.core.task import Objective, Task
from autoscout.core.trial import Measurement, Proposal, Status, Trial
from autoscout.simulators.training.calibration import training_calibration
from autoscout.simulators.training.model import TrainingModel, TrainingOptions
from autoscout.simulators.training.read import read_layout


def task(metric: str = "step_s", **changes: object) -> Task:
    workload = {"model": "llama-3.1-8b", "seq_len": 4096, "global_batch": 64, **changes}
    return Task(system="megatron", objective=Objective(metric=metric), workload=workload, hardware={"gpus": "16xH100"})


def trial(config: Config, value: float | None, status: Status = Status.OK) -> Trial:
    metrics = {} if value is None else {"step_s": value}
    return Trial(proposal=Proposal(config=config), measurement=Measurement(status=status, metrics=metrics))


CONFIGS = [Config(tp=tp, pp=pp, dp=16 // (tp * pp), mbs=1, sp=True) for tp in (1, 2, 4, 8) for pp in (1, 2)]


def test_it_is_a_plug_in_and_a_simulator() -> None:
    assert isinstance(plugins.get("simulator", "training")(), Simulator)
    assert {"tp", "micro_batch_size", "ddp_bucket", "a40"} <= TrainingModel().knobs


def test_predictions_are_arrays_of_the_asked_length() -> None:
    prediction = TrainingModel().predict(CONFIGS, task())
    for part in (prediction.value, prediction.spread, prediction.feasible, prediction.known):
        assert part.shape == (len(CONFIGS),)
    assert (prediction.value > 0).all()
    assert TrainingModel().predict([], task()).value.shape == (0,)


def test_one_by_one_and_together_agree() -> None:
    model, asked = TrainingModel(), task()
    together = model.predict(CONFIGS, asked)
    for row, config in enumerate(CONFIGS):
        alone = model.predict([config], asked)
        assert alone.value[0] == pytest.approx(together.value[row])
        assert alone.feasible[0] == pytest.approx(together.feasible[row])


def test_metrics_are_conversions_of_one_time() -> None:
    model = TrainingModel()
    seconds = model.predict(CONFIGS, task("step_s")).value
    assert model.predict(CONFIGS, task("iteration_time_ms")).value == pytest.approx(seconds * 1e3)
    assert model.predict(CONFIGS, task("tokens_per_s_per_gpu")).value == pytest.approx(64 * 4096 / seconds / 16)
    mfu = model.predict(CONFIGS, task("mfu")).value
    assert (mfu > 0.02).all()
    assert (mfu < 1).all()


def test_knob_names_of_engines_mean_the_same() -> None:
    model = TrainingModel()
    short = model.predict([Config(tp=2, pp=2, mbs=2, ar=True)], task()).value
    long = Config(tensor_model_parallel_size=2, pipeline_parallel=2, micro_batch_size=2, activation_checkpointing="every_layer")
    assert model.predict([long], task()).value == pytest.approx(short)


def test_what_engines_refuse_is_not_feasible() -> None:
    refused = [Config(tp=32), Config(tp=3, dp=1), Config(mbs=3, dp=16), Config(tp=16, pp=2, dp=1), Config(tp=1, pp=2, vp=5, dp=8)]
    assert TrainingModel().predict(refused, task()).feasible.tolist() == [0.0] * len(refused)


def test_a_model_that_cannot_fit_is_not_feasible() -> None:
    big = task(model="llama-3.1-405b")
    assert TrainingModel().predict([Config(dp=16)], big).feasible[0] < 1e-6


def test_fitting_learns_one_scale() -> None:
    model, asked = TrainingModel(), task()
    before = model.predict(CONFIGS, asked)
    model.fit([trial(config, 1.4 * value) for config, value in zip(CONFIGS[:5], before.value[:5], strict=True)], asked)
    after = model.predict(CONFIGS, asked)
    ratio = after.value / before.value
    assert np.ptp(ratio) == pytest.approx(0.0, abs=1e-9)
    assert 1.3 < ratio[0] <= 1.4
    model.fit([], asked)
    assert model.predict(CONFIGS, asked).value == pytest.approx(before.value)


def test_fitting_a_throughput_moves_the_same_way() -> None:
    model, asked = TrainingModel(), task("tokens_per_s")
    before = model.predict(CONFIGS, asked).value
    slower = [
        Trial(proposal=Proposal(config=config), measurement=Measurement(status=Status.OK, metrics={"tokens_per_s": float(value) / 2}))
        for config, value in zip(CONFIGS, before, strict=True)
    ]
    model.fit(slower, asked)
    assert model.predict(CONFIGS, asked).value == pytest.approx(before / 2, rel=0.05)


def test_out_of_memory_trials_move_the_margin() -> None:
    asked = task()
    config = CONFIGS[2]
    model = TrainingModel()
    before = model.predict([config], asked).feasible[0]
    model.fit([trial(config, None, Status.OOM_START)] * 3, asked)
    assert model.predict([config], asked).feasible[0] < before


def test_mixed_gpus_go_at_the_pace_of_the_slowest() -> None:
    workload = {"model": "llama-3.2-3b", "seq_len": 2048, "global_batch": 96}

    def predicted(gpus: str, config: Config) -> float:
        asked = Task(system="megatron", objective=Objective(metric="step_s"), workload=workload, hardware={"gpus": gpus, "nic_gbps": 12.5})
        return float(TrainingModel().predict([config], asked).value[0])

    both = predicted("8xA100-80+4xA40", Config(tp=1, pp=1, dp=12, mbs=1))
    assert both == pytest.approx(predicted("12xA40", Config(tp=1, pp=1, dp=12, mbs=1)), rel=0.2)
    only_fast = predicted("8xA100-80+4xA40", Config(a100=8, a40=0, tp=1, pp=1, dp=8, mbs=1))
    assert only_fast < both


def test_known_falls_outside_the_calibration() -> None:
    model = TrainingModel(TrainingOptions(stack="megatron-deepspeed"))
    near = Task(
        system="x",
        objective=Objective(metric="step_s"),
        workload={"model": "gpt3-1.3b", "seq": 1024, "gbs": 16},
        hardware={"gpus": "8xA100-80"},
    )
    far = Task(
        system="x",
        objective=Objective(metric="step_s"),
        workload={"model": "gpt3-175b", "seq": 8192, "gbs": 1536},
        hardware={"gpus": "512xH100"},
    )
    inside = model.predict([Config(tp=2, mbs=1)], near)
    outside = model.predict([Config(tp=8, pp=8, mbs=1)], far)
    assert inside.known[0] == 1.0
    assert outside.known[0] < 0.2
    assert outside.spread[0] > inside.spread[0]


def test_shipped_calibrations_say_what_made_them() -> None:
    for name in ("default", "megatron-core", "megatron-deepspeed", "fsdp"):
        found = training_calibration(name)
        assert found.name == name
        assert found.made_from
        assert found.rows > 100
        assert 0 < found.mape < 0.25
    assert training_calibration("torchtitan").name == "fsdp"
    assert training_calibration("something else").name == "default"


def test_a_task_without_its_facts_names_all_of_them() -> None:
    broken = Task(system="megatron", objective=Objective(metric="step_s"), workload={"model": "nope"}, hardware={})
    with pytest.raises(ConfigError) as caught:
        TrainingModel().predict(CONFIGS, broken)
    fields = {fault.field or fault.where for fault in caught.value.faults}
    assert {"model", "hardware.gpus", "workload.sequence", "workload.global_batch"} <= fields


def test_knobs_of_pytorch_are_understood() -> None:
    """`data_parallel` names a kind there, next to the degree `dp`; layers may be recomputed by half."""
    rows = [
        {"dp": 4, "data_parallel": "fsdp2", "recompute": "half"},
        {"dp": 2, "data_parallel": "ddp", "recompute": "none"},
        {"dp": 1, "recompute": "full"},
    ]
    layout = read_layout(rows, {}, gpus=4.0)
    assert layout.dp.tolist() == [4.0, 2.0, 1.0]
    assert layout.zero.tolist() == [3.0, 0.0, 0.0]
    assert layout.recompute.tolist() == [0.5, 0.0, 1.0]
    assert read_layout([{"data_parallel": 8}], {}, gpus=8.0).dp == 8.0, "elsewhere it is the degree"
