from __future__ import annotations

import itertools

import numpy as np
import pytest

from autoscout.core import plugins
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.protocols import Prediction, Simulator
from autoscout.core.seeds import stream
from autoscout.core.task import Objective, Task
from autoscout.core.trial import Fidelity, Measurement, Proposal, Status, Trial
from autoscout.simulators import linear, log_linear
from autoscout.space import Space
from autoscout_lab.boosting import BoostedTrees, TreeOptions
from autoscout_lab.simulators import boosted, residual

TASK = Task(system="toy", objective=Objective(metric="step_s"))
CONFIGS = [
    Config(tp=tp, pp=pp, dp=dp, mbs=mbs, kernel=kernel)
    for tp, pp, dp, mbs, kernel in itertools.product((1, 2, 4), (1, 2), (1, 2), (1, 2, 4), ("flash", "torch"))
]


def trial(config: Config, value: float, status: Status = Status.OK, fidelity: Fidelity = Fidelity.MEASURED) -> Trial:
    metrics = {"step_s": value} if status is Status.OK else {}
    return Trial(proposal=Proposal(config=config), measurement=Measurement(status=status, metrics=metrics, fidelity=fidelity))


def number(config: Config, knob: str) -> float:
    return float(config[knob])  # type: ignore[arg-type]


def sums(config: Config) -> float:
    return 3.0 + 2.0 * number(config, "tp") - 0.5 * number(config, "pp") + 0.25 * number(config, "mbs")


def powers(config: Config) -> float:
    slow = 1.5 if config["kernel"] == "torch" else 1.0
    return 10.0 * (1 + number(config, "tp")) ** -0.5 * (1 + number(config, "mbs")) ** -0.3 * slow


@pytest.mark.parametrize("name", ["linear", "log-linear", "boosted", "residual", "training", "serving"])
def test_every_simulator_is_a_plug_in(name: str) -> None:
    assert name in plugins.available("simulator")
    assert isinstance(plugins.get("simulator", name)(), Simulator)


PAPER = {
    "3d-parallelism": {"a100", "a40", "mbs", "tp", "pp", "dp"},
    "5d-parallelism": {"a100", "a40", "mbs", "tp", "pp", "dp", "ep", "cp", "sp"},
    "ddp-aware": {"a100", "a40", "mbs", "tp", "pp", "dp", "ddp", "ddp_bucket"},
    "communication-aware": {"a100", "a40", "mbs", "tp", "pp", "dp", "ar", "tp_comm"},
}
"""Table 2; its `ddp_optim` are the knobs of the exchange in Table 1."""

MEGATRON = {
    "3d-parallelism": {"tp", "pp", "dp", "micro_batch"},
    "5d-parallelism": {"tp", "pp", "dp", "micro_batch", "cp", "sequence_parallel"},
    "ddp-aware": {
        *("tp", "pp", "dp", "micro_batch", "bucket_mb", "bucket_count"),
        *("distributed_optimizer", "overlap_grad_reduce", "overlap_param_gather"),
    },
    "communication-aware": {"tp", "pp", "dp", "micro_batch", "recompute", "tp_comm_overlap", "tp_comm_sms"},
}

OTHERWISE = {"ep", "cp", "tp_comm_overlap", "tp_comm_sms"}
"""Knobs that exist with experts, with long sequences or with a checkout of Megatron-LM."""


def space_of(system: str) -> Space:
    gpus = {"virtual": {"gpus": "8xA100-80+4xA40"}, "megatron": {"device": "cuda", "gpus": 8, "transformer_engine": True}}[system]
    sequence = {"virtual": {"sequence": 16384}, "megatron": {}}[system]
    backend = plugins.get("backend", system)()
    made: Space = backend.space(backend.task({"hardware": gpus, "workload": {"model": "llama-3.2-3b", **sequence}}))
    return made


def fits(space: Space) -> dict[str, linear.LinearRegression]:
    """The four of Table 2, told the same trials, whose values depend on every knob."""
    rng = stream(0, "table 2")
    configs = [config for config in (space.sample(rng) for _ in range(80)) if config is not None]
    trials = [trial(config, 1.0 + int(config.key[:6], 16) / 16**6) for config in configs]
    models = {name: linear.LinearRegression(linear.LinearOptions(subset=name)) for name in linear.TABLE_2}
    for model in models.values():
        model.fit(trials, TASK)
    return models


def columns(model: linear.LinearRegression, space: Space) -> set[str]:
    return {name for name in model.knobs if name in space.knobs}


@pytest.mark.parametrize("system", ["virtual", "megatron"])
def test_the_four_of_table_2_read_their_knobs_and_no_two_are_equal(system: str) -> None:
    space = space_of(system)
    models = fits(space)
    rng = stream(1, "table 2")
    asked = [config for config in (space.sample(rng) for _ in range(40)) if config is not None]
    wanted = {"megatron": MEGATRON, "virtual": {**PAPER, "ddp-aware": PAPER["ddp-aware"] - {"ddp"}}}[system]
    for name, model in models.items():
        assert columns(model, space) == wanted[name] & space.knobs.keys()
        assert columns(model, space) >= wanted[name] - OTHERWISE
    for one, other in itertools.combinations(models.values(), 2):
        assert not np.allclose(one.predict(asked, TASK).value, other.predict(asked, TASK).value)


def test_table_2_reads_the_names_of_the_paper() -> None:
    for name, wanted in PAPER.items():
        assert wanted <= set(linear.TABLE_2[name])
        assert not (set().union(*PAPER.values()) - wanted) & set(linear.TABLE_2[name])


def test_table_2_reads_the_names_of_megatron() -> None:
    for name, wanted in MEGATRON.items():
        assert wanted <= set(linear.TABLE_2[name])


def test_deepspeed_has_an_exchange_to_read() -> None:
    backend = plugins.get("backend", "deepspeed")()
    space = backend.space(backend.task(backend.example()))
    assert {"zero_stage", "overlap_comm", "reduce_bucket_size"} <= set(linear.TABLE_2["ddp-aware"]) & space.knobs.keys()


def test_linear_regression_finds_a_sum_exactly() -> None:
    model = linear.LinearRegression(linear.LinearOptions(subset="3d-parallelism"))
    model.fit([trial(config, sums(config)) for config in CONFIGS[::3]], TASK)
    predicted = model.predict(CONFIGS, TASK)
    assert predicted.value == pytest.approx([sums(config) for config in CONFIGS])
    assert model.predict([Config(tp=8, pp=1, dp=1, mbs=1, kernel="flash")], TASK).value[0] == pytest.approx(3 + 16 - 0.5 + 0.25)


def test_linear_regression_reads_only_its_knobs() -> None:
    model = linear.LinearRegression(linear.LinearOptions(subset="3d-parallelism"))
    model.fit([trial(config, sums(config)) for config in CONFIGS], TASK)
    one, other = CONFIGS[0], CONFIGS[0].extend(kernel="something else", zz=9)
    assert model.predict([one], TASK).value == pytest.approx(model.predict([other], TASK).value)


def test_log_linear_finds_products_of_powers() -> None:
    model = log_linear.LogLinearRegression(log_linear.LogLinearOptions(ridge=0.0))
    model.fit([trial(config, powers(config)) for config in CONFIGS[::5]], TASK)
    assert model.predict(CONFIGS, TASK).value == pytest.approx([powers(config) for config in CONFIGS], rel=1e-6)


def test_boosted_trees_follow_interactions() -> None:
    def truth(config: Config) -> float:
        return 5.0 if config["kernel"] == "torch" and number(config, "tp") >= 4 else 1.0 + 0.1 * number(config, "mbs")

    model = boosted.BoostedRegression()
    model.fit([trial(config, truth(config)) for config in CONFIGS], TASK)
    assert model.predict(CONFIGS, TASK).value == pytest.approx([truth(config) for config in CONFIGS], rel=0.1)


@pytest.mark.parametrize("build", [linear.LinearRegression, log_linear.LogLinearRegression, boosted.BoostedRegression])
def test_before_any_trial_nothing_is_known(build: type[linear.LinearRegression]) -> None:
    model = build()
    for seen in ([], [trial(CONFIGS[0], 2.0)], [trial(CONFIGS[0], 0.0, Status.CRASHED)]):
        model.fit(seen, TASK)
        prediction = model.predict(CONFIGS[:3], TASK)
        assert prediction.known.tolist() == [0.0] * 3
        assert np.isfinite(prediction.value).all()


def test_simulated_trials_teach_nothing() -> None:
    model = linear.LinearRegression()
    model.fit([trial(config, sums(config), fidelity=Fidelity.SIMULATED) for config in CONFIGS], TASK)
    assert model.predict(CONFIGS[:1], TASK).known[0] == 0.0


def test_another_metric_is_not_answered_with_the_fitted_one() -> None:
    model = linear.LinearRegression()
    model.fit([trial(config, sums(config)) for config in CONFIGS], TASK)
    other = Task(system="toy", objective=Objective(metric="peak_mem_gib"))
    assert model.predict(CONFIGS[:2], other).known.tolist() == [0.0, 0.0]


def test_known_is_one_on_the_data_and_falls_away_from_it() -> None:
    model = log_linear.LogLinearRegression()
    model.fit([trial(config, powers(config)) for config in CONFIGS], TASK)
    on, off = model.predict([CONFIGS[4], Config(tp=512, pp=64, dp=64, mbs=64, kernel="flash")], TASK).known
    assert on == pytest.approx(1.0)
    assert off < 0.01


def test_options_are_checked() -> None:
    with pytest.raises(ConfigError, match="5d-parallelism"):
        linear.LinearOptions(subset="7d")
    with pytest.raises(ConfigError) as caught:
        boosted.BoostedOptions(rounds=0, rate=2.0)
    assert len(caught.value.faults) == 2


def test_trees_are_deterministic_and_answer_in_blocks() -> None:
    inputs = np.random.default_rng(3).normal(size=(700, 4))
    target = np.where(inputs[:, 0] > 0, 1.0, -1.0) + inputs[:, 1]
    trees = BoostedTrees(TreeOptions(rounds=60, depth=3)).fit(inputs, target)
    again = BoostedTrees(TreeOptions(rounds=60, depth=3)).fit(inputs, target)
    assert (trees.predict(inputs) == again.predict(inputs)).all()
    assert np.corrcoef(trees.predict(inputs), target)[0, 1] > 0.95
    assert trees.predict(inputs[:3]) == pytest.approx(trees.predict(inputs)[:3])


class Half(Simulator):
    """A simulator that says half of the truth for everything but torch kernels."""

    knobs = frozenset({"tp", "mbs"})

    def predict(self, configs: list[Config], task: Task) -> Prediction:
        value = np.array([powers(config.extend(kernel="flash")) for config in configs])
        one = np.ones(len(configs))
        return Prediction(value=value, spread=0.2 * one, feasible=one, known=0.1 * one)

    def fit(self, trials: list[Trial], task: Task) -> None:
        pass


def test_the_residual_corrects_near_its_trials_and_stays_off_elsewhere() -> None:
    model = residual.ResidualModel(base=Half())  # type: ignore[arg-type]
    model.fit([trial(config, powers(config)) for config in CONFIGS], TASK)
    torch = [config for config in CONFIGS if config["kernel"] == "torch"]
    assert model.predict(torch, TASK).value == pytest.approx([powers(config) for config in torch], rel=0.05)
    far = [Config(tp=1024, pp=64, dp=64, mbs=64, kernel="torch")]
    assert model.predict(far, TASK).value == pytest.approx(Half().predict(far, TASK).value)


def test_few_trials_leave_the_base_alone() -> None:
    model = residual.ResidualModel(base=Half())  # type: ignore[arg-type]
    model.fit([trial(config, powers(config)) for config in CONFIGS[:5]], TASK)
    assert model.predict(CONFIGS, TASK).value == pytest.approx(Half().predict(CONFIGS, TASK).value)
