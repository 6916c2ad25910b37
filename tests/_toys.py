"""Small real parts for tests of the loop: a space of one or two integer knobs, and evaluators made of functions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from autoscout.core.clock import VirtualClock
from autoscout.core.config import Config
from autoscout.core.origin import Origin
from autoscout.core.protocols import Evaluator, Searcher
from autoscout.core.task import Budget, Objective, Task
from autoscout.core.trial import Fidelity, Measurement, Proposal, Status, Trial


def toy_task(**budget: float | None) -> Task:
    return Task(system="toy", objective=Objective(metric="time_s"), budget=Budget(**budget))  # type: ignore[arg-type]


def ok(time_s: float, cost_s: float = 1.0, fidelity: Fidelity = Fidelity.MEASURED) -> Measurement:
    return Measurement(status=Status.OK, metrics={"time_s": time_s}, cost_s=cost_s, fidelity=fidelity)


@dataclass
class Numbers:
    """The space x in range(size), default 0."""

    size: int = 10

    def default(self) -> Config:
        return Config(x=0)

    def check(self, config: Config) -> list[str]:
        return [] if config.get("x") in range(self.size) and len(config) == 1 else ["x is out of range"]

    def fingerprint(self) -> str:
        return f"numbers-{self.size}"


@dataclass
class InOrder(Searcher):
    """Proposes 1, 2, 3, ...: whatever is neither told nor pending."""

    space: Numbers
    told: list[Trial] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    pending_seen: list[int] = field(default_factory=list)

    def ask(self, n: int, given: Config = Config(), pending: Sequence[Proposal] = ()) -> list[Proposal]:
        self.pending_seen.append(len(pending))
        busy = {trial.config for trial in self.told} | {proposal.config for proposal in pending}
        free = [Config(x=x) for x in range(self.space.size) if Config(x=x) not in busy]
        return [Proposal(config=config, origin=Origin.from_json({"by": "in-order"})) for config in free[:n]]

    def tell(self, trials: Sequence[Trial]) -> None:
        self.told += trials
        self.groups.append(len(trials))


@dataclass
class FromFunction(Evaluator):
    """Evaluates by a function of the config; counts what it was asked."""

    function: Callable[[Config], Measurement]
    slots: int = 1
    clock: VirtualClock | None = None
    calls: list[Proposal] = field(default_factory=list)
    rechecks: list[Proposal] = field(default_factory=list)
    cancelled: threading.Event = field(default_factory=threading.Event)

    def evaluate(self, proposals: Sequence[Proposal]) -> list[Measurement]:
        self.calls += proposals
        answers = [self.function(proposal.config) for proposal in proposals]
        if self.clock:
            self.clock.sleep(sum(answer.cost_s for answer in answers))
        return answers

    def recheck(self) -> list[Proposal]:
        return self.rechecks

    def cancel(self) -> None:
        self.cancelled.set()


@dataclass
class Watcher:
    """Notes what an observer is told."""

    phases: list[str] = field(default_factory=list)
    begun: list[Proposal] = field(default_factory=list)
    ended: list[Trial] = field(default_factory=list)

    def phase(self, name: str) -> None:
        self.phases.append(name)

    def started(self, proposal: Proposal) -> None:
        self.begun.append(proposal)

    def finished(self, trial: Trial) -> None:
        self.ended.append(trial)
