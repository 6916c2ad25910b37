from __future__ import annotations

import itertools

import numpy as np
import pytest

from autoscout.core import plugins
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.protocols import Prediction, Simulator
from autoscout.core.task import Objective, Task
from autoscout.core.trial import Fidelity, Measurement, Proposal, Status, Trial
from autoscout.simulators import linear, log_linear
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


def test_table_2_of_the_paper() -> None:
    base = {"a100", "a40", "mbs", "tp", "pp", "dp"}
    three, five, ddp, communication = map(set, linear.TABLE_2.values())
    assert three == base
    assert five == base | {"ep", "cp", "sp"}
    assert ddp == base | {"ddp_optim"}
    assert communication == base | {"ar", "tp_comm"}


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
