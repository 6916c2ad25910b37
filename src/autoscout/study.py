"""The study: ask -> evaluate -> append -> tell until the budget ends, then the final.

Knows only protocols. Everything it remembers is in the store: a study that was killed goes on by reading it again.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from autoscout.core.clock import Clock, RealClock
from autoscout.core.config import Config
from autoscout.core.log import logger
from autoscout.core.protocols import Evaluator, Searcher, SpaceLike, Store, StudyRecord
from autoscout.core.trial import Proposal, Trial
from autoscout.crew import Crew, Pace, Slot, slot
from autoscout.finals import Finals, plan
from autoscout.spending import Stop, busy_s, counted, over

log = logger(__name__)


class Observer(Protocol):
    """Somebody who watches a study; called from the thread that runs it."""

    def phase(self, name: str) -> None: ...

    def started(self, proposal: Proposal) -> None: ...

    def finished(self, trial: Trial) -> None: ...


@dataclass(kw_only=True)
class Study:
    """One search over one task. `run()` starts it, or goes on with what the store holds."""

    record: StudyRecord
    space: SpaceLike
    searcher: Searcher
    evaluator: Evaluator
    store: Store
    observer: Observer
    worker: str
    baseline: Config  # measured first: the engine's default, with the user's pinned knobs
    given: Config = field(default_factory=Config)  # the pinned knobs
    first: Sequence[Config] = ()  # known-good configurations, tried right after the baseline
    finals: Finals = field(default_factory=Finals)
    pace: Pace = field(default_factory=Pace)
    clock: Clock = field(default_factory=RealClock)
    stopping: threading.Event = field(default_factory=threading.Event)  # set it to end the study early
    trials: list[Trial] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self._told = -1  # number of the last batch that was read back and told
        self._seen: set[Slot] = set()
        self._begun_s = 0.0
        self._crew = Crew(
            study=self.record.name, evaluator=self.evaluator, store=self.store, worker=self.worker, pace=self.pace, clock=self.clock
        )

    def run(self) -> Stop:
        """Search, then the final. Returns why the study ended; the trials are in `trials` and in the store."""
        self._read()
        self._begun_s = self.clock.span_s() - busy_s(self.trials)
        with self._crew:
            self.observer.phase("search")
            stop = self._search()
            if stop not in (Stop.INTERRUPTED, Stop.FAILURES):
                stop = self._final() or stop
        return stop

    def _search(self) -> Stop:
        while True:
            stop = Stop.INTERRUPTED if self.stopping.is_set() else self._over()
            if stop is None:
                self._fill()
            if self._crew.busy:
                self._crew.collect()
            elif stop is not None:
                return stop
            elif not self._crew.await_others():
                return Stop.EXHAUSTED
            self._read()

    def _over(self) -> Stop | None:
        wall_s = self.clock.span_s() - self._begun_s
        return over(self.record.task.budget, self.trials, wall_s, self.finals, self._crew.workers)

    def _fill(self) -> None:
        """Give every free slot something to do, as far as the budget, the searcher and the other processes let us."""
        limit = self.record.task.budget.trials
        while (count := self._crew.free) > 0:
            if limit is not None:
                count = min(count, limit - self._crew.busy - len(counted(self.trials)))
            proposals = self._next(count) if count > 0 else []
            if not proposals:
                return
            for proposal in self._crew.start(proposals):
                self.observer.started(proposal)

    def _next(self, count: int) -> list[Proposal]:
        opening = [Proposal(config=self.baseline, origin={"by": "default"})]
        opening += [Proposal(config=config, origin={"by": "given"}) for config in self.first]
        pending = self._crew.pending
        taken = self._seen | {slot(proposal) for proposal in pending}
        wanted = [proposal for proposal in [*opening, *self.evaluator.recheck()] if slot(proposal) not in taken][:count]
        if len(wanted) < count:
            wanted += self.searcher.ask(count - len(wanted), self.given, [*pending, *wanted])
        fresh: dict[Slot, Proposal] = {}
        for proposal in wanted:
            if slot(proposal) not in taken:
                fresh.setdefault(slot(proposal), proposal)
        return list(fresh.values())

    def _read(self) -> None:
        """Take in everything stored since the last look, ours and that of other processes alike, in the store's order."""
        for batch in self.store.batches(self.record.name, self._told):
            self._told = batch[-1].batch
            self.trials += batch
            for trial in batch:
                self._seen.add(slot(trial.proposal))
                self._crew.elsewhere.pop(slot(trial.proposal), None)
                self.observer.finished(trial)
                log.info("%s #%d %s %s", trial.study, trial.number, trial.measurement.status, dict(trial.proposal.origin))
            # When the space has changed since, old trials stay in the report but not in the search.
            self.searcher.tell([trial for trial in batch if not self.space.check(trial.config)])

    def _final(self) -> Stop | None:
        rounds = plan(self.trials, self.record.task, self.baseline, self.finals)
        if rounds:
            self.observer.phase("final")
        for proposals in rounds:
            while missing := [proposal for proposal in proposals if slot(proposal) not in self._seen]:
                if not self.stopping.is_set():
                    taken = {slot(proposal) for proposal in self._crew.pending}
                    free = [proposal for proposal in missing if slot(proposal) not in taken]
                    for proposal in self._crew.start(free[: self._crew.free]):
                        self.observer.started(proposal)
                if self._crew.busy:
                    self._crew.collect()
                elif self.stopping.is_set() or not self._crew.await_others():
                    return Stop.INTERRUPTED
                self._read()
        return None
