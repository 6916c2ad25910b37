"""Everything that the trials of one study show; each part is worked out when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from autoscout.analysis.ablation import Ablation, ablate
from autoscout.analysis.contributions import Contribution, contributions, limit_contributions
from autoscout.analysis.curves import ordered
from autoscout.analysis.distribution import Distribution, distribution_of
from autoscout.analysis.importance import Importance, knob_importance, varied_knobs
from autoscout.analysis.labels import KnobNote, namer
from autoscout.analysis.learning import Learning, learning_of
from autoscout.analysis.summary import Summary, summarise
from autoscout.analysis.verdict import Verdict
from autoscout.core.config import Config
from autoscout.core.reference import References
from autoscout.core.task import Task
from autoscout.core.trial import Trial


@dataclass(frozen=True, kw_only=True, eq=False)
class StudyResult:
    """The result of one study at one moment.

    Attributes:
        task: What was tuned.
        trials: Those that count.
        default_config: The engine's default.
        baseline: What the user runs today; None without one.
        knobs: The space's knobs, for units, help and order.
        study: Its name; taken from the trials when empty.
        exact: Whether every answer is the same each time.
        load: How the load was produced, in one sentence.
        folder: Where the study lives, for the command that continues it.
        check: What is wrong with a configuration, by the space; None where nobody can say.
        most_explained: Trials up to which contributions and the way from the default to the best are worked out: they compare
            configurations pair by pair.
    """

    task: Task
    trials: Sequence[Trial]
    default_config: Config
    baseline: Config | None = None
    knobs: Sequence[KnobNote] = ()
    study: str = ""
    exact: bool = False
    load: str = ""
    folder: str = ""
    check: Callable[[Config], list[str]] | None = None
    most_explained: int | None = None

    @cached_property
    def references(self) -> References:
        """What takes part in every final."""
        return References(self.default_config, self.baseline)

    @cached_property
    def reference(self) -> Config:
        """What gains are measured against: the baseline where there is one that runs, else the default."""
        return self.references.reference(self.trials)

    @cached_property
    def name_of(self) -> Callable[[Config], str]:
        """What calls the configurations by the knobs they change."""
        return namer(self.reference, self.knobs, self.references.titles)

    @cached_property
    def learning(self) -> Learning | None:
        """What default and best learn; None for a system that reports no losses."""
        best = self.summary.best
        return learning_of(self.trials, self.default_config, best.config if best is not None else None)

    @cached_property
    def summary(self) -> Summary:
        """The verdict with everything it rests on."""
        return summarise(
            self.task,
            self.trials,
            self.default_config,
            knobs=self.knobs,
            study=self.study,
            name_of=self.name_of,
            exact=self.exact,
            load=self.load,
            folder=self.folder,
            baseline=self.baseline,
        )

    @property
    def best_config(self) -> Config | None:
        """The strongest contender; None when nothing but the default ran."""
        return self.summary.best.config if self.summary.best else None

    @cached_property
    def importance(self) -> Importance:
        """How much each knob matters."""
        return knob_importance(self.summary.task, self.trials)

    @cached_property
    def distribution(self) -> Distribution | None:
        """How many configurations are near the best, and how many fail; None where nothing can be compared."""
        return distribution_of(self.summary.task, ordered(self.trials), self.reference)

    @property
    def units(self) -> dict[str, str]:
        """The units of the knobs that have one."""
        return {knob.name: knob.unit for knob in self.knobs if knob.unit}

    @cached_property
    def varied(self) -> list[str]:
        """Knobs that took more than one value, the most important first."""
        return varied_knobs(ordered(self.trials), self.knobs, self.importance)

    @cached_property
    def ablation(self) -> Ablation | None:
        """The way from the reference to the best, knob by knob; None when nothing but that ran."""
        best = self.best_config
        if best is None or self._is_too_long:
            return None
        return ablate(self.summary.task, self.trials, self.reference, best, check=self.check)

    @cached_property
    def contributions(self) -> tuple[Contribution, ...]:
        """What each changed knob of the best configuration contributes: to newly kept limits, where there are any, or the goal."""
        best, summary = self.best_config, self.summary
        if best is None or self._is_too_long:
            return ()
        if summary.verdict is Verdict.KEEPS:
            return limit_contributions(self.trials, self.reference, best, [after.limit for _, after in summary.newly_kept_limits])
        return contributions(summary.task, self.trials, self.reference, best, gain=summary.gain, exact=self.exact)

    @property
    def _is_too_long(self) -> bool:
        return self.most_explained is not None and len(self.trials) > self.most_explained


__all__ = ["StudyResult"]
