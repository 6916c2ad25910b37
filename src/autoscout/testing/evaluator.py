"""What every evaluator must do. Subclass `EvaluatorSuite` in a test module and give it three fixtures:

    class TestMyEvaluator(EvaluatorSuite):
        @pytest.fixture
        def evaluator(self):
            return MyEvaluator(...)

        @pytest.fixture
        def good(self):      # at least three proposals with different configurations that succeed
            return [Proposal(config=Config(x=x)) for x in range(3)]

        @pytest.fixture
        def bad(self):       # proposals that fail, with the status each must get
            return [(Proposal(...), Status.CRASHED)]

        def slow(self):      # a proposal that takes very long, if there can be one
            return Proposal(...)

Needs no pytest itself; the methods are plain functions of these.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from autoscout.core.protocols import Evaluator
from autoscout.core.trial import Fidelity, Measurement, Proposal, Status

PATIENCE_S = 120.0
"""How long to wait for what should come at once: only a broken evaluator waits so long."""


class EvaluatorSuite:
    """The contract of `autoscout.core.protocols.Evaluator`, one method per rule."""

    metric = "time_s"  # the task's objective
    fidelity = Fidelity.MEASURED

    def slow(self) -> Proposal | None:
        """A proposal that takes minutes unless cancelled; None when nothing here can."""
        return None

    def started(self) -> None:
        """Wait until the slow proposal is under way; override where that can be seen."""

    def test_is_an_evaluator(self, evaluator: Evaluator) -> None:
        assert isinstance(evaluator, Evaluator)
        assert evaluator.slots >= 1

    def test_nothing_asked_nothing_answered(self, evaluator: Evaluator) -> None:
        assert evaluator.evaluate([]) == []

    def test_one_answer_each_in_order(self, evaluator: Evaluator, good: Sequence[Proposal]) -> None:
        together = evaluator.evaluate(good)
        assert len(together) == len(good)
        for measurement in together:
            self.check(measurement)
            assert measurement.ok, measurement
            assert self.metric in measurement.metrics
            assert measurement.fidelity is self.fidelity

    def test_a_failure_is_an_answer(self, evaluator: Evaluator, bad: Sequence[tuple[Proposal, Status]]) -> None:
        for proposal, status in bad:
            (measurement,) = evaluator.evaluate([proposal])
            self.check(measurement)
            assert measurement.status is status, measurement
            assert measurement.reason, "a person wants to know why"

    def test_failures_do_not_disturb_their_neighbours(
        self, evaluator: Evaluator, good: Sequence[Proposal], bad: Sequence[tuple[Proposal, Status]]
    ) -> None:
        mixed = [good[0], *(proposal for proposal, _ in bad), good[1]]
        answers = evaluator.evaluate(mixed)
        assert [answer.status for answer in answers] == [Status.OK, *(status for _, status in bad), Status.OK]

    def test_the_same_asked_twice_is_answered_twice(self, evaluator: Evaluator, good: Sequence[Proposal]) -> None:
        answers = evaluator.evaluate([good[0], good[0]])
        assert [answer.status for answer in answers] == [Status.OK, Status.OK]

    def test_as_many_threads_as_slots(self, evaluator: Evaluator, good: Sequence[Proposal]) -> None:
        barrier = threading.Barrier(evaluator.slots)

        def work(number: int) -> list[Measurement]:
            barrier.wait(PATIENCE_S)
            return evaluator.evaluate([good[number % len(good)]])

        with ThreadPoolExecutor(evaluator.slots) as pool:
            answers = list(pool.map(work, range(evaluator.slots)))
        assert all(len(answer) == 1 and answer[0].ok for answer in answers)

    def test_recheck_names_proposals(self, evaluator: Evaluator, good: Sequence[Proposal]) -> None:
        evaluator.evaluate(good[:1])
        assert all(isinstance(proposal, Proposal) for proposal in evaluator.recheck())

    def test_cancel_when_idle_does_no_harm(self, evaluator: Evaluator, good: Sequence[Proposal]) -> None:
        evaluator.cancel()
        evaluator.cancel()
        assert evaluator.evaluate(good[:1])[0].ok, "cancel ends what is under way, not what comes later"

    def test_cancel_ends_what_is_under_way(self, evaluator: Evaluator, good: Sequence[Proposal]) -> None:
        slow = self.slow()
        if slow is None:
            return
        with ThreadPoolExecutor(1) as pool:
            answers = pool.submit(evaluator.evaluate, [slow])
            self.started()
            evaluator.cancel()
            (measurement,) = answers.result(PATIENCE_S)
        assert measurement.status is Status.ABORTED
        assert not measurement.metrics
        assert evaluator.evaluate(good[:1])[0].ok

    def check(self, measurement: Measurement) -> None:
        """What holds for every answer."""
        assert Measurement.from_json(measurement.to_json()) == measurement, "survives a file"
        assert measurement.cost_s >= 0
        assert all(map(math.isfinite, [measurement.cost_s, *measurement.metrics.values(), *measurement.conditions.values()]))
        assert measurement.ok == (measurement.status is Status.OK)
        if measurement.ok:
            assert measurement.reason == ""
