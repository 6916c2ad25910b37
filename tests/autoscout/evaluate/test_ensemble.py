from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.protocols import Evaluator, Prediction, Simulator
from autoscout.core.task import Limit, Objective, Task
from autoscout.core.trial import Fidelity, Measurement, Proposal, Status, Trial
from autoscout.evaluate.ensemble import EnsembleEvaluator, EnsembleOptions

TASK = Task(system="toy", objective=Objective(metric="time_s"))
CONFIGS = [Config(x=x) for x in range(1, 13)]


@dataclass
class Formula(Simulator):
    """A simulator that always answers by one formula."""

    formula: Callable[[float], float]
    feasible: float = 1.0
    known: float = 1.0
    fits: list[int] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    knobs: frozenset[str] = frozenset({"x"})

    def predict(self, configs: Sequence[Config], task: Task) -> Prediction:
        self.asked.append(task.objective.metric)
        one = np.ones(len(configs))
        value = np.array([self.formula(float(config["x"])) for config in configs])  # type: ignore[arg-type]
        return Prediction(value=value, spread=0.1 * one, feasible=self.feasible * one, known=self.known * one)

    def fit(self, trials: Sequence[Trial], task: Task) -> None:
        self.fits.append(len(trials))


def trials(formula: Callable[[float], float], fidelity: Fidelity = Fidelity.MEASURED) -> list[Trial]:
    return [
        Trial(
            proposal=Proposal(config=config),
            measurement=Measurement(status=Status.OK, metrics={"time_s": formula(float(config["x"]))}, fidelity=fidelity),  # type: ignore[arg-type]
        )
        for config in CONFIGS
    ]


def test_answers_are_simulated_and_in_order() -> None:
    evaluator = EnsembleEvaluator([Formula(lambda x: 2 * x)], TASK)
    assert isinstance(evaluator, Evaluator)
    answers = evaluator.evaluate([Proposal(config=config) for config in CONFIGS])
    assert [answer.metrics["time_s"] for answer in answers] == pytest.approx([2.0 * x for x in range(1, 13)])
    assert {answer.fidelity for answer in answers} == {Fidelity.SIMULATED}
    assert evaluator.evaluate([]) == []
    assert evaluator.recheck() == []


def test_equation_2_weighs_by_r_squared() -> None:
    truth = lambda x: 10 + x  # noqa: E731
    exact, poor = Formula(truth), Formula(lambda x: 16.5 + 0.5 * (x - 6.5) + (1.5 if x % 2 else -1.5))
    evaluator = EnsembleEvaluator([exact, poor], TASK, EnsembleOptions(weights="r2"), trials(truth))
    values = np.array([truth(x) for x in range(1, 13)])
    wrong = np.array([poor.formula(x) for x in range(1, 13)])
    determination = 1 - ((values - wrong) ** 2).sum() / ((values - values.mean()) ** 2).sum()
    assert evaluator.weights == pytest.approx((1 / (1 + determination), determination / (1 + determination)))
    predicted = evaluator.predict(CONFIGS).value
    assert predicted == pytest.approx((values + determination * wrong) / (1 + determination))


def test_a_simulator_worse_than_the_mean_weighs_nothing_by_r_squared_but_may_rank_well() -> None:
    truth = lambda x: 10 + x  # noqa: E731
    biased = Formula(lambda x: 100 * (10 + x))
    off = EnsembleEvaluator([Formula(truth), biased], TASK, EnsembleOptions(weights="r2"), trials(truth))
    assert off.weights == (1.0, 0.0)
    on = EnsembleEvaluator([Formula(lambda x: 15 + (x * 7) % 5), biased], TASK, EnsembleOptions(weights="rank"), trials(truth))
    assert on.weights[1] > 0.7


def test_rank_weights_leave_out_who_does_not_know_the_region() -> None:
    evaluator = EnsembleEvaluator([Formula(lambda x: x, known=1.0), Formula(lambda x: 1000.0, known=0.0)], TASK)
    assert evaluator.predict(CONFIGS[:1]).value[0] == pytest.approx(1.0, rel=1e-3)


def test_disagreement_widens_the_spread() -> None:
    same = EnsembleEvaluator([Formula(lambda x: x), Formula(lambda x: x)], TASK).predict(CONFIGS[:1]).spread[0]
    apart = EnsembleEvaluator([Formula(lambda x: x), Formula(lambda x: 3 * x)], TASK).predict(CONFIGS[:1]).spread[0]
    assert apart > same + 0.3


def test_learning_fits_all_simulators_to_measured_trials_only() -> None:
    one = Formula(lambda x: x)
    evaluator = EnsembleEvaluator([one, Formula(lambda x: 2 * x)], TASK)
    evaluator.learn(trials(lambda x: x, Fidelity.SIMULATED))
    assert one.fits == []
    evaluator.learn(trials(lambda x: x))
    assert one.fits[-1] == 12  # the last fit is on everything, those before left parts out


def test_what_will_not_fit_is_answered_as_out_of_memory() -> None:
    (answer,) = EnsembleEvaluator([Formula(lambda x: x, feasible=0.2)], TASK).evaluate([Proposal(config=CONFIGS[0])])
    assert answer.status is Status.OOM_START
    assert "20%" in answer.reason


def test_limits_are_predicted_as_well() -> None:
    objective = Objective(metric="time_s", limits=(Limit.parse("peak_mem_gib<=10"),))
    simulator = Formula(lambda x: x)
    (answer,) = EnsembleEvaluator([simulator], Task(system="toy", objective=objective)).evaluate([Proposal(config=CONFIGS[0])])
    assert set(answer.metrics) == {"time_s", "peak_mem_gib"}
    assert set(simulator.asked) == {"time_s", "peak_mem_gib"}


def test_no_finite_answer_is_not_a_result() -> None:
    (answer,) = EnsembleEvaluator([Formula(lambda x: float("nan"))], TASK).evaluate([Proposal(config=CONFIGS[0])])
    assert answer.status is Status.WRONG_OUTPUT


def test_options_are_checked() -> None:
    with pytest.raises(ConfigError) as caught:
        EnsembleOptions(weights="loud", feasible=2.0)
    assert len(caught.value.faults) == 2
    with pytest.raises(ConfigError, match="at least one"):
        EnsembleEvaluator([], TASK)
