"""Dispatch: the trials a study has under way, here and in other processes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from autoscout.core.clock import Clock
from autoscout.core.config import Config
from autoscout.core.protocols import Evaluator, Observer, Store
from autoscout.core.room import Room
from autoscout.core.trial import Measurement, Proposal, Status, Trial

POLL_S = 0.5  # how often to look again for trials that another process is measuring

TrialKey = tuple[Config, int]
"""A configuration and which repeat of it: what only one worker may be measuring."""


def trial_key(proposal: Proposal) -> TrialKey:
    """The trial that a proposal asks for."""
    return proposal.config, proposal.repeat


@dataclass(frozen=True, kw_only=True)
class Parallelism:
    """How trials are started.

    Attributes:
        workers: Trials at once; the evaluator's slots when None.
        together: Wait for all trials of a batch before asking again (a searcher may want the whole batch), instead of
            starting a new one the moment a worker is free.
        lease_s: How long other machines believe that a trial of ours is still under way.
        per_process: Trials of the search that a worker hands to the evaluator at once, to share a process where they can.
    """

    workers: int | None = None
    together: bool = False
    lease_s: float = 6 * 3600.0
    per_process: int = 1


@dataclass(kw_only=True)
class Dispatcher:
    """Claims proposals, evaluates them on threads, and makes what comes back durable. A context manager."""

    study: str
    evaluator: Evaluator
    store: Store
    observer: Observer
    worker: str
    parallelism: Parallelism
    clock: Clock
    held_by_others: dict[TrialKey, Proposal] = field(default_factory=dict, init=False)  # held by other processes

    def __post_init__(self) -> None:
        self.workers = max(1, min(self.parallelism.workers or self.evaluator.slots, self.evaluator.slots))
        self._flight: dict[Future[list[Trial]], list[Proposal]] = {}
        self._settled = False
        self.full = False  # others hold what the budget has left: they may give it back

    def __enter__(self) -> Self:
        self._pool = ThreadPoolExecutor(self.workers, thread_name_prefix="trial")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            self.evaluator.cancel()  # or the pool would wait for trials whose results nobody can store
        self._pool.shutdown()
        with suppress(Exception):  # an error is on its way already: there is nothing under way without one
            self._keep(list(self._flight))

    @property
    def busy(self) -> int:
        """How many trials of ours are under way."""
        return sum(map(len, self._flight.values()))

    @property
    def idle(self) -> int:
        """How many workers have nothing to do."""
        return 0 if self.parallelism.together and self._flight else self.workers - len(self._flight)

    @property
    def free(self) -> int:
        """How many more trials of a search may start now."""
        return self.idle * self.parallelism.per_process

    @property
    def pending(self) -> list[Proposal]:
        """Everything under way, here and in other processes."""
        return [proposal for unit in self._flight.values() for proposal in unit] + list(self.held_by_others.values())

    def start(self, proposals: Sequence[Proposal], *, apart: bool = False, room: Room | None = None) -> None:
        """Start those that nobody else holds; the others are remembered in `held_by_others`.

        Args:
            proposals: What to measure.
            apart: None shares a process.
            room: What a budget that other processes use, too, has left; who finds none left is `full`.
        """
        if not proposals:
            return
        arguments = {} if room is None else {"room": room}
        claimed = self.store.claim(self.study, proposals, self.worker, self.parallelism.lease_s, **arguments)
        self.full = room is not None and not claimed and self._is_taken(room)
        held = {trial_key(proposal) for proposal in claimed}
        if not self.full:
            self.held_by_others.update((trial_key(proposal), proposal) for proposal in proposals if trial_key(proposal) not in held)
        size = 1 if apart else self.parallelism.per_process
        units = [claimed[at : at + size] for at in range(0, len(claimed), size)]
        for unit in filter(None, [claimed] if self.parallelism.together else units):
            self._flight[self._pool.submit(self._evaluate, unit)] = unit
        for proposal in claimed:
            self.observer.started(proposal)

    def _is_taken(self, room: Room) -> bool:
        """Whether others have or hold all that a budget had left."""
        pulse = self.store.pulses().get(self.study)
        others = 0 if pulse is None else sum(worker != self.worker for worker in pulse.workers)
        return pulse is not None and not room.left(pulse.trials, others)

    def collect(self) -> list[Proposal]:
        """Wait until at least one batch is done, append what is, and return the proposals that were given up (aborted)."""
        done, _ = wait(self._flight, return_when=FIRST_COMPLETED)
        return self._keep(done)

    def await_others(self) -> bool:
        """With nothing of ours to do: give other processes time. False when they hold nothing either."""
        if not self.held_by_others and not self.full:
            return False
        self.full = False
        self.clock.sleep(POLL_S)
        self.held_by_others.clear()  # a holder may have died: claim again, the store knows who is alive
        return True

    def settle(self) -> bool:
        """The search has nothing more to propose: let the evaluator name what it still wants, once. False when that is nothing."""
        if self._settled:
            return False
        self._settled = True
        self.evaluator.settle()
        return bool(self.evaluator.recheck())

    def _keep(self, done: Collection[Future[list[Trial]]]) -> list[Proposal]:
        """Append finished units. An error of one is raised when the others are safe; its claims are given back."""
        errors: list[Exception] = []
        given_up: list[Proposal] = []
        for future in done:
            unit = self._flight.pop(future)
            try:
                trials = future.result()
            except Exception as error:
                errors.append(error)
                trials = self._trials(unit, [Measurement(status=Status.ABORTED)] * len(unit), 0.0, 0.0)
            self.store.append(self.study, trials)
            given_up += [trial.proposal for trial in trials if trial.measurement.status is Status.ABORTED]
        if errors:
            raise errors[0]
        return given_up

    def _evaluate(self, unit: list[Proposal]) -> list[Trial]:
        started_s, begun_s = self.clock.now_s(), self.clock.span_s()
        measured = self.evaluator.evaluate(unit)
        return self._trials(unit, measured, started_s, self.clock.span_s() - begun_s)  # the system's time may be set meanwhile

    def _trials(self, unit: Sequence[Proposal], measured: Sequence[Measurement], started_s: float, took_s: float) -> list[Trial]:
        finished_s = started_s + took_s
        return [
            Trial(proposal=proposal, measurement=answer, study=self.study, worker=self.worker, started_s=started_s, finished_s=finished_s)
            for proposal, answer in zip(unit, measured, strict=True)
        ]
