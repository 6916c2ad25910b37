"""The evaluators that simulate, under the suite of their protocol."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from test_ensemble import Formula

from autoscout.core.config import Config
from autoscout.core.protocols import Evaluator
from autoscout.core.task import Objective, Task
from autoscout.core.trial import Fidelity, Proposal, Status
from autoscout.evaluate.adaptive import AdaptiveEvaluator
from autoscout.evaluate.ensemble import EnsembleEvaluator
from autoscout.evaluate.noisy import NoisyEvaluator
from autoscout.evaluate.virtual import VirtualEvaluator
from autoscout.testing.evaluator import EvaluatorSuite

TASK = Task(system="toy", objective=Objective(metric="time_s"))


class _Simulating(EvaluatorSuite):
    fidelity = Fidelity.SIMULATED

    @pytest.fixture
    def good(self) -> list[Proposal]:
        return [Proposal(config=Config(x=x)) for x in (1, 2, 3)]

    @pytest.fixture
    def bad(self) -> Sequence[tuple[Proposal, Status]]:
        return [(Proposal(config=Config(x=-1)), Status.WRONG_OUTPUT)]


def formula(x: float) -> float:
    return x if x > 0 else float("nan")


class TestEnsemble(_Simulating):
    @pytest.fixture
    def evaluator(self) -> Evaluator:
        return EnsembleEvaluator([Formula(formula)], TASK)


class TestNoisy(_Simulating):
    @pytest.fixture
    def evaluator(self) -> Evaluator:
        return NoisyEvaluator(EnsembleEvaluator([Formula(formula)], TASK))


class TestAdaptive(_Simulating):
    @pytest.fixture
    def evaluator(self) -> Evaluator:
        simulated = EnsembleEvaluator([Formula(formula)], TASK)
        return AdaptiveEvaluator(simulated, VirtualEvaluator(Formula(formula), TASK), TASK)


class TestVirtual(_Simulating):
    @pytest.fixture
    def evaluator(self) -> Evaluator:
        return VirtualEvaluator(Formula(formula), TASK)

    @pytest.fixture
    def bad(self) -> Sequence[tuple[Proposal, Status]]:
        return [(Proposal(config=Config(x=-1)), Status.OOM_START)]
