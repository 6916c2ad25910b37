"""What came of a study: the trials, why it ended, and everything a report says of them."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from autoscout.analysis.ablation import Ablation
from autoscout.analysis.contributions import Contribution
from autoscout.analysis.frame import trials_dataframe
from autoscout.analysis.importance import Importance
from autoscout.analysis.result import StudyResult
from autoscout.analysis.summary import Summary
from autoscout.analysis.unseen import UnseenWindows
from autoscout.common.text import plural, show_number
from autoscout.core.config import Config
from autoscout.core.history import best
from autoscout.core.origin import Phase
from autoscout.core.trial import Trial
from autoscout.study.budget import Stop
from autoscout.study.folder import Folder
from autoscout.study.setup import Setup
from autoscout.study.start import StartingPoint
from autoscout.study.unseen import unseen_of

if TYPE_CHECKING:
    import pandas

_BEST_CHARS = 600  # of the best configuration in `repr`


@dataclass(frozen=True, kw_only=True, repr=False)
class Outcome:
    """What a study came to; worked out from the stored trials, so that it may be asked at any moment.

    Attributes:
        setup: What was tuned.
        start: What it started from.
        trials: Everything stored, in order.
        stop: Why it ended; None while it is under way.
        ended: The same in a line for people, with what was left of the budget.
        folder: Where everything is kept; None for a study without one.
        handed_over: Files written to `best/`, relative to it.
        invalid: Numbers of the trials that somebody marked invalid, and why; they do not count.
        machine: The machine that ran the study, in words.
    """

    setup: Setup
    start: StartingPoint
    trials: tuple[Trial, ...]
    stop: Stop | None
    ended: str = ""
    folder: Folder | None = None
    handed_over: tuple[str, ...] = ()
    invalid: Mapping[int, str] = field(default_factory=dict)
    machine: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        """A few lines; `_repr_html_` shows more in a notebook."""
        failed = sum(trial.measurement.status.failed for trial in self.inside)
        count = plural(len(self.inside), "trial") + (f", {failed} failed" if failed else "")
        ended = self.ended or (self.stop.value if self.stop else "not finished")
        best = repr(self.best) if len(repr(self.best)) <= _BEST_CHARS else f"{repr(self.best)[:_BEST_CHARS]}..."
        lines = [f"Outcome of {self.setup.name!r}: {count}; {ended}", f"  best  {best}"]
        lines.append(f"  {self.setup.task.objective.metric}  {show_number(self.value)}")
        return "\n".join([*lines, f"  kept in {self.folder.path}"] if self.folder else lines)

    def having(self, **fields: Any) -> Outcome:
        """The same with other `stop`, `ended` or `handed_over`, on which nothing that was worked out depends: it is kept."""
        other = dataclasses.replace(self, **fields)
        vars(other).update({name: value for name, value in vars(self).items() if name in ("inside", "result", "unseen")})
        return other

    @cached_property
    def inside(self) -> tuple[Trial, ...]:
        """The trials that count: those that the space and the pinned knobs allow, which may have changed since."""
        return tuple(trial for trial in self.trials if trial.number not in self.invalid and not self.setup.space.check(trial.config))

    @cached_property
    def result(self) -> StudyResult:
        """Everything that the trials show."""
        setup = self.setup
        return StudyResult(
            task=setup.task,
            trials=self.inside,
            default_config=setup.default,
            baseline=setup.baseline,
            knobs=tuple(setup.space.knobs.values()),
            study=setup.name,
            exact=setup.deterministic,
            load=setup.backend.load(setup.task),
            folder=str(self.folder.path) if self.folder else "",
            check=setup.space.check,
        )

    @property
    def summary(self) -> Summary:
        """The verdict with everything it rests on."""
        return self.result.summary

    @property
    def importance(self) -> Importance:
        """How much each knob matters."""
        return self.result.importance

    @property
    def ablation(self) -> Ablation | None:
        """The way from the default to the best, knob by knob; None when nothing but the default ran."""
        return self.result.ablation

    @property
    def contributions(self) -> tuple[Contribution, ...]:
        """What each changed knob of the best configuration contributes."""
        return self.result.contributions

    @cached_property
    def unseen(self) -> UnseenWindows | None:
        """How the answer and the default stand in windows of the traffic that the study does not judge on; None without any."""
        answer = self.summary.answer
        chosen = {} if answer in (None, self.setup.default) else {"answer": answer}
        named = {"default": self.setup.default, **chosen}
        return unseen_of(self.setup, {name: config for name, config in named.items() if config is not None})

    def trials_dataframe(self) -> pandas.DataFrame:
        """The trials that count, as a pandas table with one row per trial; see `analysis.frame`."""
        return trials_dataframe(self.summary.task, self.inside)

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
        runs = [trial for trial in trials if trial.config == answer and trial.measurement.fidelity is top]
        values = [value for trial in runs if (value := task.objective.value(trial.measurement)) is not None]
        return statistics.median(values) if values else None

    @property
    def _final(self) -> list[Trial]:
        return [trial for trial in self.inside if trial.proposal.origin.phase is Phase.FINAL]
