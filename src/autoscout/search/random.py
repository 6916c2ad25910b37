"""Searcher `random`: valid configurations by chance, none twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.origin import Origin
from autoscout.core.protocols import Searcher
from autoscout.core.seeds import stream
from autoscout.core.task import Task
from autoscout.core.trial import Proposal, Status, Trial
from autoscout.space import Space

_NOTHING = Config()


@dataclass(frozen=True, kw_only=True)
class RandomOptions:
    """How `random` draws.

    Attributes:
        listed: Up to this many configurations are listed and drawn from the list, which notices exactly when none is left;
            larger spaces are sampled.
    """

    listed: int = 4096

    def __post_init__(self) -> None:
        if self.listed < 0:
            raise ConfigError(Fault(where="random", field="listed", value=repr(self.listed), rule="must not be negative"))


class RandomSearcher(Searcher):
    """Every valid configuration is equally likely; none is proposed twice, and the end of a small space is noticed exactly.

    The draws of a round come from the stream (seed, "random", number of trials told), so they depend on nothing else.
    """

    takes_several_goals: ClassVar[bool] = True  # it looks at none

    def __init__(self, space: Space, task: Task, seed: int = 0, options: RandomOptions | None = None) -> None:  # noqa: ARG002
        self._space = space
        self._seed = seed
        self._options = options or RandomOptions()
        self._count = 0
        self._configs: set[Config] = set()
        self._lists: dict[Config, list[Config] | None] = {}

    def ask(self, n: int, given: Config = _NOTHING, pending: Sequence[Proposal] = ()) -> list[Proposal]:
        waiting = {proposal.config for proposal in pending}

        def is_taken(config: Config) -> bool:
            return config in self._configs or config in waiting

        configs = self._listed(n, given, is_taken)
        if configs is None:
            configs = self._sampled(n, given, is_taken)
        return [Proposal(config=config, origin=Origin(by="random", notes={"round": self._count})) for config in configs]

    def tell(self, trials: Sequence[Trial]) -> None:
        self._configs.update(trial.config for trial in trials)
        # An aborted trial is not stored, so counting it would make a resumed study draw differently.
        self._count += sum(trial.measurement.status is not Status.ABORTED for trial in trials)

    def _listed(self, n: int, given: Config, is_taken: Callable[[Config], bool]) -> list[Config] | None:
        """Draws from the list of what is left; None when there is too much to list."""
        if given not in self._lists:
            configs = list(islice(self._space.enumerate(given), self._options.listed + 1))
            self._lists[given] = configs if len(configs) <= self._options.listed else None
        everything = self._lists[given]
        if everything is None:
            return None
        # One order for the whole list, and then the first free ones: a draw does not depend on what is pending.
        order = stream(self._seed, "random", self._count).permutation(len(everything))
        return list(islice((everything[index] for index in order if not is_taken(everything[index])), n))

    def _sampled(self, n: int, given: Config, is_taken: Callable[[Config], bool]) -> list[Config]:
        rng = stream(self._seed, "random", self._count)
        configs: list[Config] = []
        misses = 0
        while len(configs) < n and misses < 1000 + 20 * n:
            config = self._space.sample(rng, given)
            if config is None:
                return []
            if is_taken(config) or config in configs:
                misses += 1
                continue
            configs.append(config)
        if len(configs) < n:  # almost everything is taken: look through the rest in order
            drawn = set(configs)
            free = (config for config in self._space.enumerate(given) if not is_taken(config) and config not in drawn)
            configs += islice(free, n - len(configs))
        return configs


__all__ = ["RandomSearcher"]
