"""The ledger: the trials of a study, with what its loop asks of them after each one kept up to date.

A loop that went through all trials after each of them would take longer with every trial.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

from autoscout.core.config import Config
from autoscout.core.origin import Phase
from autoscout.core.task import Objective
from autoscout.core.trial import Fidelity, Trial


@dataclass
class Lengths:
    """How long some trials took: how many there are, and their seconds in all."""

    count: int = 0
    total_s: float = 0.0

    def add(self, trial: Trial) -> None:
        """As it would be again: the final shares no process, and compiles nothing."""
        self.count += 1
        self.total_s += trial.measurement.usual_s

    @property
    def mean_s(self) -> float:
        return self.total_s / self.count if self.count else 0.0


class Ledger(list[Trial]):
    """Trials in the order of the store. It grows at its end alone; another list for anything else.

    What it knows is caught up when it is asked, so that each trial is looked at once.
    """

    def __init__(self, trials: Sequence[Trial] = ()) -> None:
        super().__init__(trials)
        self._entered = 0
        self._top: Fidelity | None = None
        self._search: dict[Fidelity, Lengths] = {}  # of trials that a budget counts
        self._search_ok: dict[Fidelity, Lengths] = {}
        self._final = Lengths()
        self._cost_s = self._compiled_s = 0.0
        self._of: dict[Config, list[Trial]] = {}
        self._ranking = Ranking(None)

    @classmethod
    def of(cls, trials: Sequence[Trial]) -> Ledger:
        """These trials as a ledger; themselves where they are one."""
        return trials if isinstance(trials, Ledger) else cls(trials)

    def _enter(self) -> None:
        for number in range(self._entered, len(self)):
            trial = self[number]
            fidelity, phase = trial.measurement.fidelity, trial.proposal.origin.phase
            self._top = fidelity if self._top is None else max(self._top, fidelity)
            self._cost_s += trial.measurement.cost_s
            self._compiled_s += trial.measurement.compiled_s
            self._of.setdefault(trial.config, []).append(trial)
            if phase is Phase.FINAL and trial.ok:
                self._final.add(trial)
            if phase is Phase.SEARCH and not trial.proposal.again:
                self._search.setdefault(fidelity, Lengths()).add(trial)
                if trial.ok:
                    self._search_ok.setdefault(fidelity, Lengths()).add(trial)
        self._entered = len(self)

    @property
    def top(self) -> Fidelity | None:
        """The highest fidelity there is."""
        self._enter()
        return self._top

    @property
    def counted(self) -> int:
        """How many trials a budget of trials counts: those of the search at the highest fidelity it has reached.

        Simulated answers are free once anything real was measured; what simplifying and the final measure is not the search's.
        The default counts once, however often it is measured.
        """
        self._enter()
        return self._search[max(self._search)].count if self._search else 0

    @property
    def cost_s(self) -> float:
        """Measured seconds of all, without those in which something was compiled."""
        self._enter()
        return self._cost_s - self._compiled_s

    @property
    def compiled_s(self) -> float:
        """Seconds in which something was compiled."""
        self._enter()
        return self._compiled_s

    @property
    def mean_s(self) -> float:
        """How long a whole measurement takes: by the final, once there is one, else by the search at its highest fidelity.

        What is measured again is often cheaper than it was at first, because caches are warm by then.

        One that failed or was stopped early says nothing about a whole measurement, as long as there are others.
        """
        self._enter()
        if self._final.count or not self._search:
            return self._final.mean_s
        top = max(self._search)
        return self._search_ok.get(top, self._search[top]).mean_s

    def trials_of(self, config: Config) -> Sequence[Trial]:
        """All trials of one configuration."""
        self._enter()
        return self._of.get(config, ())

    def losses(self, objective: Objective) -> Sequence[float]:
        """The least loss of each configuration that was measured and has one, the best first."""
        self._enter()
        if self._ranking.objective != objective:
            self._ranking = Ranking(objective)
        return self._ranking.losses(self)


class Ranking:
    """The measured configurations of a ledger by what an objective makes of them."""

    def __init__(self, objective: Objective | None) -> None:
        self.objective = objective
        self._entered = 0
        self._least: dict[Config, float] = {}
        self._losses: list[float] = []

    def losses(self, trials: Sequence[Trial]) -> Sequence[float]:
        """The least finite loss of each, ascending."""
        for number in range(self._entered, len(trials)):
            trial = trials[number]
            if self.objective is None or trial.measurement.fidelity is not Fidelity.MEASURED:
                continue
            loss, least = self.objective.loss(trial.measurement), self._least.get(trial.config, math.inf)
            if loss < least:
                if math.isfinite(least):
                    del self._losses[bisect_left(self._losses, least)]
                self._least[trial.config] = loss
                insort(self._losses, loss)
        self._entered = len(trials)
        return self._losses
