"""What came of a study: the trials, why it ended, and everything a report says of them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from autoscout.analysis.ablation import Ablation, ablate
from autoscout.analysis.contributions import Contribution, contributions
from autoscout.analysis.importance import Importance, knob_importance
from autoscout.analysis.summary import Summary, summarise
from autoscout.core.config import Config
from autoscout.core.history import best
from autoscout.core.origin import Phase
from autoscout.core.trial import Trial
from autoscout.report.cell import result_cell
from autoscout.report.frame import trials_dataframe
from autoscout.study.budget import Stop
from autoscout.study.folder import Folder
from autoscout.study.setup import Setup
from autoscout.study.start import StartingPoint

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a study came to; worked out from the stored trials, so that it may be asked at any moment.

    Attributes:
        setup: What was tuned.
        start: What it started from.
        trials: Everything stored, in order.
        stop: Why it ended; None while it is under way.
        folder: Where everything is kept; None for a study without one.
        handed_over: Files written to `best/`, relative to it.
        invalid: Numbers of the trials that somebody marked invalid, and why; they do not count.
    """

    setup: Setup
    start: StartingPoint
    trials: tuple[Trial, ...]
    stop: Stop | None
    folder: Folder | None = None
    handed_over: tuple[str, ...] = ()
    invalid: Mapping[int, str] = field(default_factory=dict)

    @cached_property
    def inside(self) -> tuple[Trial, ...]:
        """The trials that count: those that the space and the pinned knobs allow, which may have changed since."""
        return tuple(trial for trial in self.trials if trial.number not in self.invalid and not self.setup.space.check(trial.config))

    @cached_property
    def summary(self) -> Summary:
        """The verdict with everything it rests on."""
        setup = self.setup
        knobs = tuple(setup.space.knobs.values())
        exact, load = setup.deterministic, setup.backend.load(setup.task)
        return summarise(setup.task, self.inside, setup.baseline, knobs=knobs, study=setup.name, exact=exact, load=load)

    @cached_property
    def importance(self) -> Importance:
        """How much each knob matters."""
        return knob_importance(self.setup.task, self.inside)

    @cached_property
    def ablation(self) -> Ablation | None:
        """The way from the default to the best, knob by knob; None when nothing but the default ran."""
        found, setup = self.summary.best, self.setup
        return ablate(setup.task, self.inside, setup.baseline, found.config, check=setup.space.check) if found else None

    @cached_property
    def contributions(self) -> tuple[Contribution, ...]:
        """What each changed knob of the best configuration contributes."""
        found, setup, gain = self.summary.best, self.setup, self.summary.gain
        if found is None:
            return ()
        return contributions(self.summary.task, self.inside, setup.baseline, found.config, gain=gain, exact=setup.deterministic)

    def trials_dataframe(self) -> pandas.DataFrame:
        """The trials that count, as a pandas table with one row per trial; see `report.frame`."""
        return trials_dataframe(self.summary.task, self.inside)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return result_cell(self.summary)

    @property
    def best(self) -> Config | None:
        """The configuration to use: the answer of the final, or the best that was seen where there was none; None when nothing worked."""
        if self._final or self.setup.deterministic:
            return self.summary.answer
        top = best(self.inside, self.summary.task)
        return None if top is None else top.config

    @property
    def value(self) -> float | None:
        """The metric of `best`: its median in the final, or as it was seen where there was none."""
        task, answer = self.setup.task, self.best
        trials = self._final or self.inside
        top = max((trial.measurement.fidelity for trial in trials), default=None)
        seen = [trial for trial in trials if trial.config == answer and trial.measurement.fidelity is top]
        values = [value for trial in seen if (value := task.objective.value(trial.measurement)) is not None]
        return statistics.median(values) if values else None

    @property
    def _final(self) -> list[Trial]:
        return [trial for trial in self.inside if trial.proposal.origin.phase is Phase.FINAL]
