"""Running totals of a study: how far it is, what is left, what is best."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from statistics import median

from autoscout.analysis.curves import busy_s
from autoscout.analysis.gain import MIN_PAIRS
from autoscout.analysis.verdict import Decision, decide
from autoscout.core.config import Config
from autoscout.core.guards import bind
from autoscout.core.origin import Phase
from autoscout.core.reference import References
from autoscout.core.task import Task
from autoscout.core.trial import Fidelity, Trial

_RECENT = 20  # trials that the estimate of the next one's length looks back on


class Tally:
    """Counts trials as they come in; holds no clock and no lock.

    A budget of trials counts the search at its highest fidelity: simulated answers are free once anything real was
    measured, and simplifying and the final come on top.
    """

    def __init__(
        self,
        task: Task,
        default_config: Config,
        *,
        workers: int = 1,
        final_trials: int = 0,
        final_rounds: int = 0,
        name_of: Callable[[Config], str] | None = None,
        baseline: Config | None = None,
    ) -> None:
        self.task = task
        self._name_of = name_of
        self.best: Trial | None = None
        self.failed = 0
        self.final: Decision | None = None  # what the final says so far
        self._references = References(default_config, baseline)
        self._reference = self._references.reference(())  # what gains are counted from
        self.default_breaks = False  # whether that broke a limit each time so far
        self._defaults: list[float] = []  # what it measured, at the highest fidelity
        self._workers = max(1, workers)
        self._final_trials, self._final_rounds = final_trials, final_rounds
        self._contenders: tuple[str, ...] = ()  # who meets in the final that is under way
        self._trials: list[Trial] = []
        self._search: dict[Fidelity, int] = {}
        self._finals = 0
        self._simplified = 0
        self._cost_s = 0.0
        self._earlier_s: float | None = None  # busy seconds of earlier runs
        self._lengths_s: deque[float] = deque(maxlen=_RECENT)

    @property
    def done(self) -> int:
        return len(self._trials)

    def needed(self, trial: Trial) -> tuple[int, float]:
        """How many measurements like this one a verdict takes at least, and how many seconds: the references and another one, then all
        again in the final. None without a final."""
        sides = len(self._references.all) + 1
        count = sides * (1 + min(self._final_rounds, MIN_PAIRS)) if self._final_trials else 0
        return count, count * trial.measurement.usual_s / self._workers

    @property
    def reference_name(self) -> str:
        """What to call what gains are counted from."""
        return self._references.titles[self._reference]

    @property
    def searched(self) -> int:
        """Trials that the budget counts."""
        return self._search[max(self._search)] if self._search else 0

    @property
    def best_value(self) -> float | None:
        return self.task.objective.value(self.best.measurement) if self.best else None

    @property
    def gain(self) -> float | None:
        """Of the best single measurement over the reference's median, which is too good on average; the final corrects it."""
        if not self._defaults or self.best is None or self.best_value is None:
            return None
        if self.best.config == self._reference:
            return 1.0  # its best measurement is no gain over its others
        gain = self.task.objective.gain(median(self._defaults), self.best_value)
        return gain if math.isfinite(gain) and gain > 0 else None

    def add(self, trial: Trial) -> bool:
        """Count a trial; returns whether it is the best so far."""
        answer = trial.measurement
        if answer.fidelity is Fidelity.PREDICTED:
            return False
        self._trials.append(trial)
        self._cost_s += answer.cost_s
        self.failed += answer.status.failed
        self._lengths_s.append(max(answer.cost_s, trial.finished_s - trial.started_s))
        if trial.proposal.origin.phase is Phase.FINAL:
            self._count_final(trial.proposal.origin.contenders)
            self.final = decide(self.task, self._trials, self._references.default, self._name_of, baseline=self._references.baseline)
            return False
        if trial.proposal.origin.phase is Phase.SIMPLIFY:
            self._simplified += 1
            return False
        self._search[answer.fidelity] = self._search.get(answer.fidelity, 0) + (not trial.proposal.again)
        if self.best is not None and answer.fidelity > self.best.measurement.fidelity and answer.ok:
            self.best, self._defaults = None, []  # real numbers replace simulated ones
        if trial.config == self._references.baseline and (now := self._references.reference(self._trials)) != self._reference:
            self._reference, self._defaults = now, []  # the baseline does not run
            for earlier in self._trials[:-1]:
                self._count_reference(earlier)
        self._count_reference(trial)
        return not trial.proposal.again and self._improve(trial)

    def _count_reference(self, trial: Trial) -> None:
        """Take in one of the reference's own measurements."""
        if trial.config != self._reference:
            return
        self.task = bind(self.task, self._trials, self._reference)
        value = self.task.objective.value(trial.measurement)
        if value is not None:
            breaks = not math.isfinite(self.task.objective.loss(trial.measurement))
            self.default_breaks = breaks and (self.default_breaks or not self._defaults)
            self._defaults.append(value)

    def _count_final(self, contenders: tuple[str, ...]) -> None:
        """Only the final under way counts; how many trials it has is known once it has begun."""
        if contenders != self._contenders:
            self._finals, self._contenders = 0, contenders
            self._final_trials = self._final_rounds * len(contenders) or self._final_trials
        self._finals += 1

    def _improve(self, trial: Trial) -> bool:
        loss = self.task.objective.loss(trial.measurement)
        if not math.isfinite(loss):
            return False
        if self.best is not None:
            held = self.best.measurement
            if trial.measurement.fidelity < held.fidelity or loss >= self.task.objective.loss(held):
                return False
        self.best = trial
        return True

    def begin(self) -> None:
        """A run begins: what was counted before belongs to earlier ones."""
        self._earlier_s = busy_s(self._trials)

    def progress_text(self) -> str:
        """`12/40`, followed by the trials of simplifying and of the final."""
        budget = self.task.budget.trials
        text = f"{self.searched}/{budget}" if budget is not None else f"{self.searched}"
        if self._simplified:
            text += f" + simplify {self._simplified}"
        if self._finals:
            text += f" + final {self._finals}" + (f"/{self._final_trials}" if self._final_trials else "")
        return text + (" trial" if text == "1" else " trials")

    def share(self, elapsed_s: float) -> float | None:
        """Part of the budget used, by whichever bound is nearest; None when there is no bound."""
        budget = self.task.budget
        shares = []
        if budget.trials is not None:
            shares.append((self.searched + self._simplified + self._finals) / (budget.trials + self._simplified + self._final_trials))
        if budget.wall_s is not None:
            shares.append((elapsed_s + (self._earlier_s or 0.0)) / budget.wall_s)
        if budget.cost_s is not None:
            shares.append(self._cost_s / budget.cost_s)
        return min(1.0, max(shares)) if shares else None

    def left_s(self, elapsed_s: float) -> float | None:
        """Seconds until the study ends, from the length of recent trials and the nearest bound; None when unknown."""
        budget = self.task.budget
        bounds = []
        if budget.wall_s is not None:
            bounds.append(budget.wall_s - elapsed_s - (self._earlier_s or 0.0))
        if self._lengths_s:
            mean_s = sum(self._lengths_s) / len(self._lengths_s)
            finals_left = max(0, self._final_trials - self._finals)
            if budget.trials is not None:
                bounds.append((max(0, budget.trials - self.searched) + finals_left) * mean_s / self._workers)
            if budget.cost_s is not None:
                bounds.append((budget.cost_s - self._cost_s) / self._workers)
        return max(0.0, min(bounds)) if bounds else None
