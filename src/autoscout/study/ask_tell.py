"""A study whose configurations are measured by the program that asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

from autoscout.backends.function import Call
from autoscout.core.actions import invalid_trials
from autoscout.core.clock import Clock, RealClock
from autoscout.core.config import Config, Value
from autoscout.core.errors import ConfigError, Fault, Infeasible
from autoscout.core.guards import as_told, refuse_unknown
from autoscout.core.origin import By, Origin, Phase
from autoscout.core.reference import of_search
from autoscout.core.trial import Measurement, Proposal, Status, Trial
from autoscout.core.worker import worker_identity
from autoscout.study.assemble import build_searcher, join
from autoscout.study.budget import Stop
from autoscout.study.dispatch import Parallelism, TrialKey, trial_key
from autoscout.study.final import EDITIONS, Simplified, fallen, plan
from autoscout.study.folder import Folder
from autoscout.study.outcome import Outcome
from autoscout.study.patience import SearchPatience
from autoscout.study.runs import NotedRun
from autoscout.study.setup import Setup
from autoscout.study.simplify import simplify
from autoscout.study.start import StartingPoint

Result = float | Mapping[str, float] | BaseException | Measurement
"""What a configuration came to: the objective's value, metrics by name, or why it failed."""


def measured_elsewhere(config: Config) -> float:
    """Stands for the function of a study that was asked and told: its program alone can measure."""
    raise Infeasible(f"{config!r} can only be measured by the program that asked for it")


class AskTellStudy:
    """A study that proposes configurations and is told what they came to; made by `create_study`. A context manager.

    >>> study = create_study({"x": range(9)}, trials=5)
    >>> while trial := study.ask():
    ...     _ = study.tell(trial, (trial.config["x"] - 3) ** 2)
    >>> len(study.outcome().trials)
    5
    """

    def __init__(self, setup: Setup, folder: Folder | None, publish: Callable[[Outcome], Outcome], clock: Clock | None = None) -> None:
        self._setup, self._folder, self._publish, self._clock = setup, folder, publish, clock or RealClock()
        self._start = StartingPoint.decide(setup, folder)
        self._searcher = build_searcher(setup, self._start)
        self._store, self._record = join(setup, self._start, folder)
        self._worker = worker_identity()
        self._noted = NotedRun(self._store, setup.name, self._worker)
        self._trials: list[Trial] = []
        self._inside: list[Trial] = []
        self._keys: set[TrialKey] = set()
        self._asked: dict[TrialKey, tuple[Proposal, float]] = {}  # with the moment when it was asked for
        self._last_batch = -1
        self._stop: Stop | None = None
        self._patience = SearchPatience(setup.baseline or setup.default)
        self._searched = 0  # trials that the budget counts
        self._read()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"AskTellStudy({self._setup.name!r}, {len(self._trials)} trials, {len(self._asked)} under way)"

    @property
    def pending(self) -> tuple[Proposal, ...]:
        """What was asked for and not told yet."""
        return tuple(proposal for proposal, _ in self._asked.values())

    def ask(self) -> Proposal | None:
        """The next configuration to measure, as `config` of a proposal: the default first, then the baseline, then what
        the searcher proposes.

        With `rounds`, the final follows when the search is over. None where nothing is left to measure, or nothing before more is told.
        Several may be under way at once, here and in other processes that share the folder or store.
        """
        self._read()
        elsewhere: list[Proposal] = []
        while (proposal := self._next([*self.pending, *elsewhere])) is not None:
            if self._store.claim(self._setup.name, [proposal], self._worker, Parallelism.lease_s):
                self._asked[trial_key(proposal)] = proposal, self._clock.span_s()
                return proposal
            elsewhere.append(proposal)
        return None

    def tell(self, trial: Proposal | Mapping[str, Value], result: Result) -> Trial:
        """Say what a configuration came to; kept at once.

        Args:
            trial: What `ask` gave, or a configuration of your own: knobs left out are as in the default.
            result: A number, metrics by name, or an exception for a failure: `Infeasible("does not fit")` for what cannot work.

        Raises:
            ConfigError: this trial was told already.
            SpaceError: the space does not have such a configuration.
        """
        proposal = trial if isinstance(trial, Proposal) else self._own(trial)
        now_s, span_s, name = self._clock.now_s(), self._clock.span_s(), self._setup.name
        took_s = span_s - self._asked.pop(trial_key(proposal), (proposal, span_s))[1]
        answer = self._measurement(proposal.config, result)
        answer = replace(answer, fidelity=self._setup.fidelity, cost_s=answer.cost_s or took_s)
        begun_s = now_s - took_s
        finished = Trial(proposal=proposal, measurement=answer, study=name, worker=self._worker, started_s=begun_s, finished_s=now_s)
        stored = self._store.append(name, [finished])
        if not stored:
            raise ConfigError(Fault(where="tell()", value=repr(proposal.config), rule="this trial was told already", fix="Ask for another"))
        self._read()
        return stored[0]

    def outcome(self) -> Outcome:
        """What the study has come to so far; with a folder its files are written."""
        self._read()
        invalid = invalid_trials(self._store.actions(self._setup.name)) if self._store.takes_actions else {}
        trials = tuple(self._trials)
        stop = None if self._asked else self._stop
        return self._publish(
            Outcome(
                setup=self._setup,
                start=self._start,
                folder=self._folder,
                trials=trials,
                stop=stop,
                ended=stop.value if stop else "",
                invalid=invalid,
            )
        )

    def close(self) -> None:
        """Give back what was asked for and not told, and let go of the store; may be called twice."""
        aborted = Measurement(status=Status.ABORTED)
        if self._asked:
            trials = [Trial(proposal=proposal, measurement=aborted, worker=self._worker) for proposal in self.pending]
            self._store.append(self._setup.name, trials)
        self._noted.stopped(None if self._asked else self._stop)
        self._asked.clear()
        self._store.close()

    def _own(self, values: Mapping[str, Value]) -> Proposal:
        config, repeat = self._setup.complete(values), 0
        while (config, repeat) in self._keys:
            repeat -= 1
        return Proposal(config=config, origin=Origin(by=By.GIVEN), repeat=repeat)

    def _measurement(self, config: Config, result: Result) -> Measurement:
        if isinstance(result, Measurement):
            return result

        def call(_: Config) -> float | Mapping[str, float]:
            if isinstance(result, BaseException):
                raise result
            return result

        return Call(function=call, config=config, metric=self._setup.task.objective.metric)()

    def _read(self) -> None:
        """Take in what was stored since the last look, here and elsewhere."""
        setup = self._setup
        for batch in self._store.batches(setup.name, self._last_batch):
            self._last_batch = batch[-1].batch
            self._trials += batch
            self._keys.update(trial_key(trial.proposal) for trial in batch)
            inside = [trial for trial in batch if not setup.space.check(trial.config)]
            self._inside += inside
            self._searched += sum(trial.proposal.origin.phase is Phase.SEARCH for trial in inside)
            for trial in inside:
                refuse_unknown(trial, setup.task, setup.default)
            reference = self._reference
            self._searcher.tell([as_told(trial, setup.task, self._inside, reference) for trial in inside])

    @property
    def _reference(self) -> Config:
        return self._setup.references.reference(of_search(self._inside))

    def _next(self, pending: Sequence[Proposal]) -> Proposal | None:
        waiting = {trial_key(proposal) for proposal in pending}

        def is_free(proposal: Proposal) -> bool:
            return trial_key(proposal) not in self._keys and trial_key(proposal) not in waiting

        searching = [proposal for proposal in pending if proposal.origin.phase is Phase.SEARCH]
        self._stop = self._over(len(searching))
        if self._stop is None:
            proposal = next(filter(is_free, self._proposals(pending)), None)
            if proposal is not None:
                return proposal
            self._stop = Stop.EXHAUSTED
        if searching:  # what they come to decides who meets in the final
            return None
        rounds = self._heat() or self._final()
        return next((proposal for one in rounds for proposal in one if is_free(proposal)), None)

    def _over(self, pending: int) -> Stop | None:
        limit = self._setup.task.budget.trials
        if limit is not None and self._searched + pending >= limit:
            return Stop.TRIALS
        return self._patience.over(self._setup.task, self._inside)

    def _proposals(self, pending: Sequence[Proposal]) -> Iterator[Proposal]:
        yield Proposal(config=self._setup.default, origin=Origin(by=By.DEFAULT))
        if self._setup.baseline is not None:
            yield Proposal(config=self._setup.baseline, origin=Origin(by=By.BASELINE))
        for config in dict.fromkeys((*self._setup.first, *self._start.winners(self._setup))):
            yield Proposal(config=config, origin=Origin(by=By.GIVEN))
        yield from self._searcher.ask(1, self._setup.given, pending)

    def _simplified(self) -> Simplified:
        setup = self._setup
        if not setup.simplify.trials:
            return Simplified()
        return simplify(self._trials, setup.task, self._reference, setup.simplify, setup.space.project, among=self._inside)

    def _heat(self) -> Sequence[Sequence[Proposal]]:
        """What is to be measured next to find which changes the gain does not need; empty when that is known."""
        heat = self._simplified().heat
        return heat if any(trial_key(proposal) not in self._keys for one in heat for proposal in one) else ()

    def _final(self) -> Sequence[Sequence[Proposal]]:
        setup = self._setup
        if not setup.finals.rounds:
            return ()
        reference = self._reference
        other = setup.references.other(reference)
        out = fallen(self._inside, setup.task, reference, setup.finals.rounds, other)
        among = [trial for trial in self._inside if trial.config not in out]
        simpler = Simplified() if out else self._simplified()
        rounds = plan(self._trials, setup.task, reference, setup.finals, among, simpler, also=other)
        origins = (trial.proposal.origin for trial in self._trials)
        begun = {origin.contenders for origin in origins if origin.phase is Phase.FINAL}
        is_new = bool(rounds) and rounds[0][0].origin.contenders not in begun
        return () if is_new and len(begun) >= EDITIONS else rounds


__all__ = ["AskTellStudy", "measured_elsewhere"]
