"""The reference: what a gain is measured against. The baseline where the user has one that runs, else the engine's default."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from autoscout.core.config import Config
from autoscout.core.origin import Phase
from autoscout.core.trial import Trial


@dataclass(frozen=True)
class References:
    """The configurations that everything is compared with: they take part in every final.

    Attributes:
        default: The engine's default, with the pinned knobs.
        baseline: What the user runs today; None where nobody says.
    """

    default: Config
    baseline: Config | None = None

    @property
    def all(self) -> tuple[Config, ...]:
        """Both, the default first."""
        return (self.default,) if self.baseline is None else (self.default, self.baseline)

    @property
    def titles(self) -> dict[Config, str]:
        """What they are called."""
        return {self.default: "default"} if self.baseline is None else {self.baseline: "baseline", self.default: "default"}

    def __contains__(self, config: object) -> bool:
        return config == self.default or (self.baseline is not None and config == self.baseline)

    def reference(self, trials: Iterable[Trial]) -> Config:
        """What gains are measured against, by these trials: the baseline, unless it was measured and never ran.

        A study asks with the trials of its search alone, because whom its final compares must not change while that runs.
        """
        if self.baseline is None:
            return self.default
        tried = [trial for trial in trials if trial.config == self.baseline and (trial.ok or trial.measurement.status.failed)]
        return self.default if tried and not any(trial.ok for trial in tried) else self.baseline

    def other(self, reference: Config) -> Config | None:
        """The one that is not the reference."""
        return self.default if self.baseline is not None and reference == self.baseline else self.baseline


def of_search(trials: Iterable[Trial]) -> Iterator[Trial]:
    """The trials of a search, as they are asked for."""
    return (trial for trial in trials if trial.proposal.origin.phase is Phase.SEARCH)


__all__ = ["References", "of_search"]
