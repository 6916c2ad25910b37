"""Never measure the same thing twice."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import replace

from autoscout.core.config import Config
from autoscout.core.protocols import Evaluator
from autoscout.core.trial import Fidelity, Measurement, Proposal, Status, Trial

_Key = tuple[Config, int]


class CachedEvaluator:
    """Answers proposals that were answered before from memory, and asks another evaluator for the rest.

    A proposal is known by its configuration and its repeat: a deliberate repeat is a new question. Of several threads that ask
    the same at once, one measures and the others wait. Aborted answers are not kept, and what the other evaluator wants
    rechecked is forgotten. A remembered answer costs nothing and says so in its conditions (`cached`).

    Args:
        evaluator: Who really answers.
        trials: Earlier answers, from a store; those at another fidelity than `fidelity` are left aside.
        fidelity: What the evaluator answers with.
    """

    def __init__(self, evaluator: Evaluator, trials: Iterable[Trial] = (), fidelity: Fidelity = Fidelity.MEASURED) -> None:
        self._evaluator = evaluator
        self._lock = threading.Lock()
        self._known: dict[_Key, Measurement] = {}
        self._asked: dict[_Key, Future[Measurement]] = {}
        for trial in trials:
            if trial.measurement.fidelity is fidelity and trial.measurement.status is not Status.ABORTED:
                self._known.setdefault(_key(trial.proposal), trial.measurement)

    @property
    def slots(self) -> int:
        return self._evaluator.slots

    def evaluate(self, proposals: Sequence[Proposal]) -> list[Measurement]:
        mine: dict[_Key, Proposal] = {}
        answers: list[Measurement | Future[Measurement]] = []
        owner: list[bool] = []
        with self._lock:
            for proposal in proposals:
                key = _key(proposal)
                known = self._known.get(key)
                if known is None and key not in self._asked:
                    self._asked[key] = Future()
                    mine[key] = proposal
                    owner.append(True)
                else:
                    owner.append(False)
                answers.append(_remembered(known) if known is not None else self._asked[key])
        self._ask(mine)
        found = [answer.result() if isinstance(answer, Future) else answer for answer in answers]
        return [answer if own else _remembered(answer) for own, answer in zip(owner, found, strict=True)]

    def recheck(self) -> list[Proposal]:
        doubted = self._evaluator.recheck()
        with self._lock:
            for proposal in doubted:
                self._known.pop(_key(proposal), None)
        return doubted

    def cancel(self) -> None:
        self._evaluator.cancel()

    def _ask(self, mine: dict[_Key, Proposal]) -> None:
        """Have the evaluator answer, and tell all who wait; an error reaches every one of them."""
        if not mine:
            return
        try:
            measured = self._evaluator.evaluate(list(mine.values()))
        except BaseException as error:
            with self._lock:
                waiting = [self._asked.pop(key) for key in mine]
            for future in waiting:
                future.set_exception(error)
            raise
        with self._lock:
            waiting = [self._asked.pop(key) for key in mine]
            for key, measurement in zip(mine, measured, strict=True):
                if measurement.status is not Status.ABORTED:
                    self._known[key] = measurement
        for future, measurement in zip(waiting, measured, strict=True):
            future.set_result(measurement)


def _key(proposal: Proposal) -> _Key:
    return proposal.config, proposal.repeat


def _remembered(measurement: Measurement) -> Measurement:
    if measurement.status is Status.ABORTED:
        return measurement
    return replace(measurement, cost_s=0.0, conditions={**measurement.conditions, "cached": 1.0})


__all__ = ["CachedEvaluator"]
