"""Searcher `openbox`: OpenBox, with the surrogate and acquisition it chooses for the space."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autoscout.core.config import Config, Value
from autoscout.core.errors import require
from autoscout.core.protocols import Searcher
from autoscout.core.seeds import number
from autoscout.core.task import Task
from autoscout.core.trial import Proposal, Trial
from autoscout.learning.answers import AnswerSet
from autoscout.space import Space
from autoscout_lab.search._shared.adapter import FEW_TRIES, Flat, history, in_turn, propose

_NOTHING = Config()


@dataclass(frozen=True, kw_only=True)
class OpenboxOptions:
    """Options of OpenBox's `Advisor`.

    Attributes:
        startup: Initial configurations, spread over the space.
        surrogate: `auto`, `gp` or `prf`.
        random: Share of proposals that are random.
    """

    startup: int = 3
    surrogate: str = "auto"
    random: float = 0.1

    def __post_init__(self) -> None:
        rules = {
            "startup": (self.startup >= 1, "must be at least 1"),
            "surrogate": (self.surrogate in ("auto", "gp", "prf"), "must be auto, gp or prf"),
            "random": (0 <= self.random <= 1, "is a share between 0 and 1"),
        }
        require("openbox", self, rules)


class OpenboxSearcher(Searcher):
    """OpenBox over the flat space: ordered knobs are integers over their positions, inactive ones are at their default.

    What it suggests is moved to the nearest valid configuration, and it is told what was measured. Failures count as the worst value that
    worked. Pending proposals are only not repeated.
    """

    requires = ("openbox",)
    extra = "openbox"

    def __init__(self, space: Space, task: Task, seed: int = 0, options: OpenboxOptions | None = None) -> None:
        self._space = space
        self._seed = seed
        self._options = options or OpenboxOptions()
        self._trials = AnswerSet(space, task.objective)
        self._flat = Flat(space)
        self._translated_space: Any = None
        self._translations: dict[Config, Any] = {}

    def ask(self, n: int, given: Config = _NOTHING, pending: Sequence[Proposal] = ()) -> list[Proposal]:
        if n < 1:
            return []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return propose("openbox", n, self._space, self._seed, self._trials, given, pending, in_turn(self._suggestions), FEW_TRIES)

    def tell(self, trials: Sequence[Trial]) -> None:
        self._trials.add(trials)

    def _suggestions(self) -> Iterator[Mapping[str, Value]]:
        """What a fresh advisor wants after hearing all that was told."""
        if not self._flat.names:
            return
        from openbox import Advisor, Observation

        past = history(self._trials)
        started = len(past) >= self._options.startup  # until then every advisor must have the same start in mind
        with tempfile.TemporaryDirectory() as folder:
            advisor = Advisor(
                self._declared(),
                initial_trials=self._options.startup,
                surrogate_type=self._options.surrogate,
                rand_prob=self._options.random,
                output_dir=folder,
                random_state=number(self._seed, "openbox", self._trials.count if started else 0) % 2**31,
                logger_kwargs={"level": "ERROR", "logdir": None, "force_init": True},
            )
            for config, loss in past:
                advisor.update_observation(Observation(config=self._translated(config), objectives=[loss]))
            while True:
                yield self._flat.values(dict(advisor.get_suggestion()))

    def _declared(self) -> Any:
        """The space in OpenBox's words."""
        if self._translated_space is None:
            from openbox import space as declared

            self._translated_space = declared.Space()
            for key, knob in self._flat.knobs.items():
                indices = range(len(knob.values))
                self._translated_space.add_variable(
                    declared.Int(key, 0, indices[-1]) if knob.ordered else declared.Categorical(key, list(map(str, indices)))
                )
        return self._translated_space

    def _translated(self, config: Config) -> Any:
        """A configuration in OpenBox's words."""
        if config not in self._translations:
            from openbox import space as declared

            indices = self._flat.positions(config)
            values = {key: index if self._flat.knobs[key].ordered else str(index) for key, index in indices.items()}
            self._translations[config] = declared.Configuration(self._declared(), values=values)
        return self._translations[config]


__all__ = ["OpenboxSearcher"]
