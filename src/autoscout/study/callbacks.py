"""Functions of the user's that are called after every trial of a study."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from autoscout.core.protocols import Observer
from autoscout.core.trial import Proposal, Trial
from autoscout.study.dispatch import TrialKey, trial_key
from autoscout.study.outcome import Outcome

Callback = Callable[[Outcome, Trial], bool | None]
"""Takes what the study has come to so far, and the trial that has just ended; true ends the study."""


@dataclass(kw_only=True)
class Callbacks:
    """An observer that calls functions after each trial measured here; an error of theirs ends the study and is raised.

    Attributes:
        empty: The outcome before the first trial.
        functions: Called in this order, from the thread that runs the study.
        stop: Ends the study.
    """

    empty: Outcome
    functions: Sequence[Callback]
    stop: Callable[[], None]
    _trials: list[Trial] = field(default_factory=list, init=False)
    _own: set[TrialKey] = field(default_factory=set, init=False)

    def phase(self, name: str) -> None: ...

    def started(self, proposal: Proposal) -> None:
        self._own.add(trial_key(proposal))

    def finished(self, trial: Trial) -> None:
        self._trials.append(trial)
        if not self.functions or trial_key(trial.proposal) not in self._own:
            return  # of an earlier run, or of another process
        outcome = replace(self.empty, trials=tuple(self._trials))
        for function in self.functions:
            if function(outcome, trial) is True:
                self.stop()


@dataclass(frozen=True)
class Together:
    """Several observers as one."""

    observers: Sequence[Observer]

    def phase(self, name: str) -> None:
        for observer in self.observers:
            observer.phase(name)

    def started(self, proposal: Proposal) -> None:
        for observer in self.observers:
            observer.started(proposal)

    def finished(self, trial: Trial) -> None:
        for observer in self.observers:
            observer.finished(trial)


__all__ = ["Callback", "Callbacks", "Together"]
