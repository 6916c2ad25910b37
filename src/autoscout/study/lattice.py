"""The configurations between the default and a winner: with some of its changes, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from autoscout.analysis.contributions import put_back
from autoscout.analysis.screen import changes_of
from autoscout.core.config import Config, Value
from autoscout.core.origin import Phase
from autoscout.core.trial import Trial

Project = Callable[[Mapping[str, Value]], Config]
"""Gives the valid configuration nearest to what is wanted: `space.project`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Lattice:
    """What can be made of a winner by putting changes back.

    Attributes:
        trials: Everything stored.
        default: Where knobs go back to.
        project: Keeps configurations inside the space.
        top: The winner, with all changes.
    """

    trials: Sequence[Trial]
    default: Config
    project: Project
    top: Config

    @cached_property
    def changed(self) -> tuple[str, ...]:
        """The knobs that the winner changes, as declared."""
        return tuple(self.changes(self.top))

    def changes(self, config: Config) -> Mapping[str, object]:
        """What a configuration makes of the knobs that it changes."""
        return changes_of(self.default, config)

    def without(self, config: Config, knobs: Sequence[str]) -> Config | None:
        """`config` with these knobs back; None where that is not valid, changes something else, nothing is left, or it failed before."""
        candidate = self.below(config, knobs)
        return None if candidate in (config, self.default) else candidate

    def below(self, config: Config, knobs: Sequence[str]) -> Config | None:
        """The same, where it may also be `config` itself or the default."""
        if not knobs:
            return config
        candidate = self.project(put_back(config, self.default, knobs))
        is_inside = self.changes(candidate).items() <= self.changes(config).items()
        return candidate if is_inside and candidate not in self._failed else None

    @cached_property
    def _failed(self) -> frozenset[Config]:
        """What failed before the final, which keeps its finalists, and outside of pairs, which keep their members."""
        return frozenset(
            trial.config
            for trial in self.trials
            if trial.measurement.status.failed and trial.proposal.origin.phase is Phase.SEARCH and trial.config != self.default
        )


__all__ = ["Lattice", "Project"]
