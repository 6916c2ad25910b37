from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from _toys import FromFunction, ok, toy_task
from autoscout.core.config import Config
from autoscout.core.protocols import Evaluator, Prediction, Simulator
from autoscout.core.task import Task
from autoscout.core.trial import Proposal
from autoscout.evaluate.predicting import PREDICTED, PredictingEvaluator


class Doubles(Simulator):
    """Predicts twice the knob; has no answer for 3."""

    knobs = frozenset({"x"})

    def predict(self, configs: Sequence[Config], task: Task) -> Prediction:
        values = np.array([np.nan if config["x"] == 3 else 2.0 * float(str(config["x"])) for config in configs])
        return Prediction(value=values, spread=values, feasible=values, known=values)

    def fit(self, trials: object, task: Task) -> None: ...


def test_the_prediction_stands_next_to_the_measurement() -> None:
    inner = FromFunction(lambda config: ok(float(str(config["x"]))), slots=3, rechecks=[Proposal(config=Config(x=1))])
    evaluator = PredictingEvaluator(inner, lambda _: Doubles(), toy_task())
    assert isinstance(evaluator, Evaluator)
    answers = evaluator.evaluate([Proposal(config=Config(x=2)), Proposal(config=Config(x=3))])
    assert [answer.metrics["time_s"] for answer in answers] == [2.0, 3.0]
    assert [answer.conditions.get(PREDICTED) for answer in answers] == [4.0, None]
    assert (evaluator.slots, evaluator.recheck()) == (3, inner.rechecks)
    evaluator.cancel()
    assert inner.cancelled.is_set()
