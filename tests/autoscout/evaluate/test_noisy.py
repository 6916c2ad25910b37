from __future__ import annotations

import numpy as np
import pytest

from _toys import FromFunction, ok
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.trial import Measurement, Proposal, Status
from autoscout.evaluate.noisy import NoisyEvaluator, NoisyOptions

PROPOSALS = [Proposal(config=Config(x=x)) for x in range(400)]


def values(evaluator: NoisyEvaluator, repeat: int = 0) -> np.ndarray:
    asked = [Proposal(config=proposal.config, repeat=repeat) for proposal in PROPOSALS]
    return np.array([answer.metrics["time_s"] for answer in evaluator.evaluate(asked)])


def test_no_noise_changes_nothing() -> None:
    assert set(values(NoisyEvaluator(FromFunction(lambda config: ok(2.0)), NoisyOptions(noise=0.0)))) == {2.0}


def test_noise_has_the_asked_size_and_stays_positive() -> None:
    drawn = values(NoisyEvaluator(FromFunction(lambda config: ok(2.0)), NoisyOptions(noise=0.4)))
    assert np.std(drawn / 2.0) == pytest.approx(0.4, rel=0.15)
    assert (drawn > 0).all()
    assert (values(NoisyEvaluator(FromFunction(lambda config: ok(2.0)), NoisyOptions(noise=3.0))) >= 0.1 - 1e-12).all()


def test_a_simulator_stays_wrong_but_a_measurement_is_drawn_anew() -> None:
    lasting = NoisyEvaluator(FromFunction(lambda config: ok(2.0)), NoisyOptions(noise=0.4))
    assert (values(lasting) == values(lasting, repeat=1)).all()
    fresh = NoisyEvaluator(FromFunction(lambda config: ok(2.0)), NoisyOptions(noise=0.4, fresh=True))
    assert (values(fresh) != values(fresh, repeat=1)).all()
    assert (values(fresh) == values(fresh)).all()


def test_failures_pass_unchanged() -> None:
    failed = Measurement(status=Status.CRASHED, reason="boom")
    assert NoisyEvaluator(FromFunction(lambda config: failed)).evaluate(PROPOSALS[:1]) == [failed]


def test_it_learns_only_if_what_it_wraps_does() -> None:
    class Learner(FromFunction):
        learns = True

        def learn(self, trials: object) -> None:
            self.rechecks = ["learned"]  # type: ignore[list-item]

    inner = Learner(lambda config: ok(2.0))
    NoisyEvaluator(inner).learn([])
    assert inner.rechecks == ["learned"]
    assert NoisyEvaluator(inner).learns
    assert not NoisyEvaluator(FromFunction(lambda config: ok(2.0))).learns


def test_negative_noise_is_refused() -> None:
    with pytest.raises(ConfigError, match="negative"):
        NoisyOptions(noise=-1)
