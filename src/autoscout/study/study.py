"""The study: ask -> evaluate -> append -> tell until the budget ends; then the winner is simplified, then the final.

Knows only base classes. Everything it remembers is in the store: a study that was killed resumes by reading it again.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from autoscout.analysis.curves import busy_s
from autoscout.analysis.frame import trials_dataframe
from autoscout.analysis.gain import MIN_PAIRS
from autoscout.analysis.summary import Summary, summarise
from autoscout.analysis.verdict import decide
from autoscout.core.clock import Clock, RealClock
from autoscout.core.config import Config
from autoscout.core.curves import curves_of
from autoscout.core.guards import as_told, refuse_unknown
from autoscout.core.log import logger
from autoscout.core.origin import By, Origin
from autoscout.core.protocols import Evaluator, Observer, Searcher, SpaceLike, Store, StudyRecord
from autoscout.core.reference import References, of_search
from autoscout.core.room import Room
from autoscout.core.task import Budget
from autoscout.core.trial import DEFAULT_AGAIN, Measurement, Proposal, Trial
from autoscout.study.budget import Stop, counted_s, ending, in_pairs, out_of_time, over, used_share
from autoscout.study.dispatch import Dispatcher, Parallelism, TrialKey, trial_key
from autoscout.study.early_stop import with_to_beat
from autoscout.study.final import EDITIONS, Finals, Simplified, fallen, finalists, long_factor, plan
from autoscout.study.lattice import Project
from autoscout.study.ledger import Ledger
from autoscout.study.patience import SearchPatience
from autoscout.study.simplify import Simplify, simplify
from autoscout.study.steering import Complete, Steering

if TYPE_CHECKING:
    import pandas

DUE = (0.0, 1 / 3, 2 / 3)
"""Share of the budget, of whatever is bounded, after which the default is measured again."""

MAX_COST_SHARE = 0.05
"""Share of the time of a budget above which a measurement is too expensive to be repeated before the final."""

FULL_S, FULL_TRIALS = 60.0, 3.0
"""Others may hold the last trials of a budget for this long, and this many times as long as a trial takes: a machine that is gone holds
them for hours."""

log = logger(__name__)


@dataclass(kw_only=True)
class Study:
    """One search over one task. `run()` starts it, or resumes from what the store holds."""

    record: StudyRecord
    space: SpaceLike
    searcher: Searcher
    evaluator: Evaluator
    store: Store
    observer: Observer
    worker: str
    default: Config  # measured first: the engine's default, with the user's pinned knobs
    baseline: Config | None = None  # measured next: what the user runs today
    given: Config = field(default_factory=Config)  # the pinned knobs
    repeat_default: bool = False  # measure both again at the start and during the search
    first: Sequence[Config] = ()  # known-good configurations, tried right after those two
    hints: Sequence[Config] = ()  # those of them that the backend names
    hints_after: Callable[[Measurement], Sequence[Config]] = lambda _: ()  # what to try in place of these, by its measurement
    finals: Finals = field(default_factory=Finals)
    simplify: Simplify = field(default_factory=Simplify)
    project: Project | None = None  # keeps what simplifying tries inside the space; None: nothing is simplified
    curves: Sequence[str] = ()  # of the reference, told to all other launches, so that nothing else is measured before it
    long_steps: int = 0  # of the runs of the last round, in which learning is compared; 0: they are as all others
    asks_early: bool = False  # let the searcher make itself ready while the first measurement runs, which takes CPU time from that
    complete: Complete | None = None  # makes a configuration that somebody asks for while the study runs complete
    fresh: Callable[[], Searcher] | None = None  # another searcher, for when trials are marked invalid: no searcher can forget
    parallelism: Parallelism = field(default_factory=Parallelism)
    clock: Clock = field(default_factory=RealClock)
    stopping: threading.Event = field(default_factory=threading.Event)  # set it to end the study early
    trials: list[Trial] = field(default_factory=list, init=False)
    inside: Ledger = field(default_factory=Ledger, init=False)  # those of `trials` that the space, which may have changed, allows

    def __post_init__(self) -> None:
        self._full_since_s: float | None = None  # since when others hold what the budget has left
        self._last_batch = -1  # number of the last batch that was read back and told
        self._keys: set[TrialKey] = set()
        self._given_up: list[Proposal] = []
        self._begun_s, self._earlier = 0.0, 0
        self._phase = "search"
        self._rounds_left = 0  # of the final
        self._suggested: Sequence[Config] | None = None  # None before the default was measured
        self._judged = 0  # trials of `inside` that were looked at for somebody who can meet the default in the final
        self._met = False  # whether there is one
        self._steering = Steering(store=self.store, study=self.record.name, complete=self.complete)
        self._left_out: frozenset[int] = frozenset()  # numbers of the trials that `inside` was last cleared of
        self._invalid: list[Proposal] = []  # of the trials that were marked invalid
        self._references = References(self.default, self.baseline)
        self._patience = SearchPatience(self.baseline or self.default)
        self._dispatcher = Dispatcher(
            study=self.record.name,
            evaluator=self.evaluator,
            store=self.store,
            observer=self.observer,
            worker=self.worker,
            parallelism=self.parallelism,
            clock=self.clock,
        )

    def run(self) -> Stop:
        """Search, simplify, final. Returns why the study ended; the trials are in `trials` and in the store."""
        self._read()
        self._begun_s, self._earlier = self.clock.span_s() - busy_s(self.inside), len(self.inside)
        with self._dispatcher:
            self.observer.phase("search")
            stop = self._search()
            if stop not in (Stop.INTERRUPTED, Stop.FAILURES, Stop.REFUSED):
                stop = self._simplify() or self._final() or stop
        return stop

    def ending(self, stop: Stop) -> str:
        """Why it ended, in a line for people."""
        budget, given_up = self.record.task.budget, bool(self._given_up)
        return ending(stop, budget, self.inside, self._wall_s, rounds=self._rounds_left, is_cut_off=given_up)

    def trials_dataframe(self) -> pandas.DataFrame:
        """The trials that count so far, as a pandas table with one row per trial; see `analysis.frame`."""
        return trials_dataframe(self.record.task, self.inside)

    @property
    def summary(self) -> Summary:
        """The verdict so far."""
        return summarise(self.record.task, self.inside, self.default, study=self.record.name, baseline=self.baseline)

    @property
    def _reference(self) -> Config:
        """What everything is compared with, as the search has it."""
        return self._references.reference(of_search(self.inside.trials_of(self.baseline)) if self.baseline else ())

    @property
    def _other(self) -> Config | None:
        """Takes part in the final like the reference."""
        return self._references.other(self._reference)

    def _search(self) -> Stop:
        while True:
            stop = Stop.INTERRUPTED if self.stopping.is_set() else self._over() or self._patience.over(self.record.task, self.inside)
            if stop is None:
                self._fill()
            if self._dispatcher.busy:
                self._ask_early()
                self._collect()
            elif stop is not None:
                return stop
            elif not (self._dispatcher.await_others() or self._dispatcher.settle()):
                return Stop.EXHAUSTED
            self._read()

    def _ask_early(self) -> None:
        """An answer that nobody needs: what the searcher works out for it, a simulator's predictions say, it need not work out again."""
        if self.asks_early and not self.inside:
            self.asks_early = False
            self.searcher.ask(1, self.given, self._dispatcher.pending)

    @property
    def _wall_s(self) -> float:
        """Seconds the study has run, earlier runs included, as its budget counts them."""
        return counted_s(self.clock.span_s() - self._begun_s, self.inside, self._dispatcher.workers)

    def _over(self) -> Stop | None:
        workers, least = self._dispatcher.workers, self._in_pairs(self.finals.least)
        return over(self.record.task.budget, self.inside, self._wall_s, self._later, workers, self._earlier, least)

    @property
    def _later(self) -> int:
        """Trials after the search; none while there is nobody to meet the default: the time is the search's."""
        if not self._met:  # by what is new: whoever cannot meet the default once cannot later
            new, self._judged = self.inside[self._judged :], len(self.inside)
            trials = [*self.inside.trials_of(self._reference), *new]
            ran = self.baseline is not None and any(trial.ok for trial in self.inside.trials_of(self.baseline))
            self._met = ran or bool(finalists(trials, self.record.task, self._reference, 1, self._other))
        return self.finals.trials + self.simplify.trials if self._met else 0

    def _collect(self) -> None:
        given_up = self._dispatcher.collect()
        if not self.stopping.is_set():  # hopeless, says the evaluator: not again in this run
            self._given_up += given_up
            self._keys.update(map(trial_key, given_up))

    def _fill(self) -> None:
        """Give every free worker something to do, as far as the budget, the searcher and the other processes let us."""
        limit = self.record.task.budget.trials
        while (count := self._affordable(self._dispatcher.free)) > 0:
            if limit is not None:
                count = min(count, limit - self._dispatcher.busy - self.inside.counted)
            proposals = self._next(count) if count > 0 else []
            if not proposals:
                return
            self._start(proposals, room=self._room(limit))
            if self._dispatcher.full:
                self._full_since_s = self._full_since_s or self.clock.span_s()
                return
            self._full_since_s = None

    def _room(self, limit: int | None) -> Room | None:
        """What the budget has left, for whoever shares it; none once others have held it for longer than they can need."""
        waited_s = self.clock.span_s() - self._full_since_s if self._full_since_s is not None else 0.0
        if limit is None or waited_s > FULL_S + FULL_TRIALS * self.inside.mean_s:
            return None
        return Room(trials=limit - self._dispatcher.busy - self.inside.counted, seen=self.trials[-1].number + 1 if self.trials else 0)

    def _affordable(self, count: int) -> int:
        """How many of these there is time for; one for every idle worker in any case."""
        while count > self._dispatcher.idle and self._out_of_time(count, self._later):
            count -= 1
        return count

    def _start(self, proposals: Sequence[Proposal], *, apart: bool = False, room: Room | None = None) -> None:
        batch = with_to_beat(proposals, self.inside, self.record.task, self._reference, self.finals.finalists, self._other)
        if self.curves and (curves := curves_of(self.inside.trials_of(self._reference), self.curves)):
            batch = [one if one.config == self._reference else replace(one, curves=curves) for one in batch]
        self._dispatcher.start(batch, apart=apart, room=room)

    def _next(self, count: int) -> list[Proposal]:
        opening = [Proposal(config=self.default, origin=Origin(by=By.DEFAULT))]
        if self.curves and not self.inside.trials_of(self.default):
            return [] if self._is_taken(opening[0], set(map(trial_key, self._dispatcher.pending))) else opening
        if self.baseline is not None:
            opening.append(Proposal(config=self.baseline, origin=Origin(by=By.BASELINE)))
        opening += [Proposal(config=config, origin=Origin(by=By.GIVEN)) for config in self._hints()]
        if self.repeat_default:
            budget = self.record.task.budget
            used = used_share(budget, self.inside, self._wall_s)
            for one in list(opening[: 1 + (self.baseline is not None)]):
                opening += repeats(one, self.inside.trials_of(one.config), used, budget)
        if self._steering.asked:
            opening += self._steering.proposals(self._keys, {trial.config for trial in self.inside})
        configs = (config for config in self.first if not (self._suggested and config in self.hints))
        opening += [Proposal(config=config, origin=Origin(by=By.GIVEN)) for config in configs]
        pending = [*self._dispatcher.pending, *self._given_up, *self._invalid]
        waiting = {trial_key(proposal) for proposal in pending}
        candidates = [one for one in [*opening, *self.evaluator.recheck()] if not self._is_taken(one, waiting)][:count]
        if len(candidates) < count:
            candidates += self.searcher.ask(count - len(candidates), self.given, [*pending, *candidates])
        return list({trial_key(one): one for one in candidates if not self._is_taken(one, waiting)}.values())

    def _is_taken(self, proposal: Proposal, waiting: Collection[TrialKey]) -> bool:
        return trial_key(proposal) in self._keys or trial_key(proposal) in waiting

    def _hints(self) -> Sequence[Config]:
        """What the default's first measurement suggests, asked for once."""
        if self._suggested is None and (trials := self.inside.trials_of(self.default)):
            self._suggested = self.hints_after(trials[0].measurement) if trials[0].ok else ()
        return self._suggested or ()

    def _read(self) -> None:
        """Take in everything stored since the last look, ours and that of other processes alike, in the store's order."""
        self._heed()
        for batch in self.store.batches(self.record.name, self._last_batch):
            self._last_batch = batch[-1].batch
            self.trials += batch
            for trial in batch:
                self._keys.add(trial_key(trial.proposal))
                self._dispatcher.held_by_others.pop(trial_key(trial.proposal), None)
                log.info("%s #%d %s %s", trial.study, trial.number, trial.measurement.status, trial.proposal.origin.to_json())
            inside = [trial for trial in self._valid(batch) if not self.space.check(trial.config)]
            self.inside += inside
            for trial in inside:
                self.observer.finished(trial)
                refuse_unknown(trial, self.record.task, self.default)
            self._tell(inside)

    def _tell(self, trials: Sequence[Trial]) -> None:
        reference = self._reference
        before = self.inside.trials_of(reference)
        self.searcher.tell([as_told(trial, self.record.task, before, reference) for trial in trials])

    def _heed(self) -> None:
        """Take in what was asked of the study from outside."""
        task = self.record.task
        self.record = replace(self.record, task=replace(task, budget=self._steering.look(task.budget)))
        if self._steering.stop:
            self.stopping.set()
        if self._steering.invalid == self._left_out:
            return
        self._left_out = self._steering.invalid
        if len(valid := self._valid(self.inside)) < len(self.inside):
            self.inside, self._judged = Ledger(valid), 0
            self.searcher = self.fresh() if self.fresh else self.searcher
            self._tell(self.inside)

    def _valid(self, trials: Sequence[Trial]) -> list[Trial]:
        """Without those that were marked invalid; what these measured is not proposed again."""
        invalid = self._steering.invalid
        self._invalid += [trial.proposal for trial in trials if trial.number in invalid]
        return [trial for trial in trials if trial.number not in invalid]

    def _simplify(self) -> Stop | None:
        """Measure heat after heat while there is time, the final's aside. Only an interrupt ends the study here."""
        before: object = None
        while self.project is not None and self.simplify.trials:
            heat = simplify(self.trials, self.record.task, self._reference, self.simplify, self.project, among=self.inside).heat
            if not heat or heat == before or self._out_of_time(sum(map(len, heat)), self.finals.trials):
                break
            before = heat
            if stop := self._rounds("simplify", heat):
                return stop if stop is Stop.INTERRUPTED else None
        return None

    def _final(self) -> Stop | None:
        for _ in range(EDITIONS):
            out = fallen(self.inside, self.record.task, self._reference, self.finals.rounds, self._other)
            if stop := self._edition(out):
                return stop
            if fallen(self.inside, self.record.task, self._reference, self.finals.rounds, self._other) in (out, frozenset()):
                return None
        return None

    def _edition(self, out: Collection[Config]) -> Stop | None:
        """The rounds of one final, without those who fell in earlier ones."""
        task, simpler = self.record.task, Simplified()
        among = [trial for trial in self.inside if trial.config not in out]
        if self.project is not None and self.simplify.trials and not out:
            simpler = simplify(self.trials, task, self._reference, self.simplify, self.project, among=self.inside)
        for number in range(self.finals.rounds):  # planned anew for each round: a default that fails is left out of the next
            rounds = plan(self.trials, task, self._reference, self.finals, among, simpler, self._fits, self._other)
            if number >= len(rounds):
                break
            if number == self.finals.rounds - 1 and self.long_steps:
                rounds[number] = self._lengthened(rounds[number])
            stop = self._rounds("final", rounds[number : number + 1])
            if stop and stop is not Stop.INTERRUPTED and number >= MIN_PAIRS and (pair := self._leaders(rounds[number])):
                stop = self._rounds("final", [pair])
            if stop:
                self._rounds_left = len(rounds) - number
                return stop
        return None

    def _lengthened(self, proposals: list[Proposal]) -> list[Proposal]:
        """A round of longer runs, the reference first, with whose curve the others are compared; as it was where there is no time."""
        factor = long_factor([trial.measurement for trial in self.inside if trial.ok], self.long_steps, self.curves)
        if self._out_of_time(math.ceil(len(proposals) * factor)):
            return proposals
        return [replace(one, is_long=True) for one in sorted(proposals, key=lambda one: one.config != self._reference)]

    def _leaders(self, proposals: Sequence[Proposal]) -> list[Proposal]:
        """Of a round for which there is no time: those that take part in any case and the one that is ahead; none if that is the round."""
        best = decide(self.record.task, self.inside, self.default, baseline=self.baseline).best
        least = [one for one in proposals if best is not None and (one.config in self._references or one.config == best.config)]
        return least if 2 <= len(least) < len(proposals) else []

    def _fits(self, count: int) -> bool:
        return not self._out_of_time(self._in_pairs(count))

    def _in_pairs(self, count: int) -> int:
        return in_pairs(count, self.inside.trials_of(self.default), self.inside)

    def _out_of_time(self, soon: int, later: int = 0) -> Stop | None:
        least = self._in_pairs(self.finals.least) if later else 0
        return out_of_time(self.record.task.budget, self.inside, self._wall_s, self._dispatcher.workers, soon, later, least)

    def _rounds(self, name: str, rounds: Sequence[Sequence[Proposal]]) -> Stop | None:
        """Measure what is missing of some rounds, one round after another; returns why not all of it was."""
        for proposals in rounds:
            missing = [proposal for proposal in proposals if trial_key(proposal) not in self._keys]
            if missing and self._phase != name:
                self._phase = name
                self.observer.phase(name)
            if missing and (stop := self._out_of_time(len(missing))):
                return stop
            while missing := [proposal for proposal in missing if trial_key(proposal) not in self._keys]:
                if not self.stopping.is_set():
                    taken = {trial_key(proposal) for proposal in self._dispatcher.pending}
                    free = [proposal for proposal in missing if trial_key(proposal) not in taken]
                    self._start(free[: self._dispatcher.idle], apart=True)
                if self._dispatcher.busy:
                    self._collect()
                elif self.stopping.is_set() or not self._dispatcher.await_others():
                    return Stop.INTERRUPTED
                self._read()
        return None


def repeats(first: Proposal, trials: Sequence[Trial], used: float, budget: Budget) -> list[Proposal]:
    """Further measurements of default or baseline that are due; none while it has not run, when it failed, or where it takes too long.

    A single measurement of what all is compared with may be slow by chance, and then every "so far" flatters: so it is measured twice at
    the start, and again spread over the search. Only a study with a final asks: without one, or where answers are exact, nobody compares
    beyond noise.
    Where one measurement takes much of the time there is, be it because the machine has become busy, the search needs it more: the final
    measures it again anyway.

    Args:
        first: Its first measurement.
        trials: Those of this configuration at least.
        used: Share of the budget.
        budget: Its bounds on time say what takes too long.
    """
    costs_s = [trial.measurement.cost_s for trial in trials if trial.config == first.config and trial.ok]
    time_s = min((bound for bound in (budget.wall_s, budget.cost_s) if bound is not None), default=math.inf)
    if not costs_s or max(costs_s) > MAX_COST_SHARE * time_s:
        return []
    due = sum(used >= mark for mark in DUE)
    return [replace(first, repeat=DEFAULT_AGAIN - number) for number in range(due)]
