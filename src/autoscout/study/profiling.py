"""A short profiling phase before the search, for simulators that learn: the paper trains its regressions before it searches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autoscout.core.config import Config
from autoscout.core.origin import By, Origin
from autoscout.core.protocols import Searcher
from autoscout.core.seeds import stream
from autoscout.core.trial import Proposal, Trial
from autoscout.evaluate.profile import profile_of
from autoscout.space import Space

PROFILED = 16
"""Configurations of the phase where nobody says how many, and at most a quarter of the budget: what fits four regressions of ten knobs."""

TRIES = 20
"""Draws for each configuration: a small space gives the same ones again."""


def profiled_configs(space: Space, count: int, seed: int, taken: Sequence[Config] = ()) -> tuple[Config, ...]:
    """Distinct valid configurations, drawn at random; fewer where the space has no more."""
    rng = stream(seed, "profiling")
    drawn: dict[Config, None] = {}
    for _ in range(count * TRIES):
        config = space.sample(rng)
        if config is None or len(drawn) == count:
            break
        if config not in taken:
            drawn[config] = None
    return tuple(drawn)


class ProfilingSearcher(Searcher):
    """Asks for the configurations of the phase first, then a searcher that is built with what they came to.

    Args:
        configs: What is measured first.
        make: Builds the searcher; given the trials of the phase.
    """

    def __init__(self, configs: Sequence[Config], make: Callable[[Sequence[Trial]], Searcher]) -> None:
        self._configs = tuple(configs)
        self._make = make
        self._trials: list[Trial] = []
        self._inner: Searcher | None = None
        make(())  # refuses what it cannot do at once

    def tell(self, trials: Sequence[Trial]) -> None:
        self._trials += trials
        if self._inner is not None and not profile_of(trials):
            self._inner.tell(trials)
        else:
            self._inner = None

    def ask(self, n: int, given: Config = Config(), pending: Sequence[Proposal] = ()) -> list[Proposal]:
        asked = {trial.config for trial in self._trials} | {proposal.config for proposal in pending}
        missing = [config for config in self._configs if config not in asked and given.items() <= config.items()]
        if missing:
            return [Proposal(config=config, origin=Origin(by=By.PROFILING)) for config in missing[:n]]
        if self._inner is None:
            self._inner = self._make(profile_of(self._trials))
            self._inner.tell(self._trials)
        return self._inner.ask(n, given, pending)


__all__ = ["PROFILED", "ProfilingSearcher", "profiled_configs"]
