"""Searcher `optuna-gp`: Optuna's Gaussian process sampler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autoscout.core.config import Config
from autoscout.core.errors import require
from autoscout.core.protocols import Searcher
from autoscout.core.task import Task
from autoscout.core.trial import Proposal, Trial
from autoscout.space import Space
from autoscout_lab.search._shared.optuna import OptunaAdapter

_NOTHING = Config()
_TRIES = 1  # the best of a fitted model stays the best, whatever the seed


@dataclass(frozen=True, kw_only=True)
class OptunaGpOptions:
    """Options of Optuna's `GPSampler`.

    Attributes:
        startup: Random trials first.
        deterministic: Whether measurements have no noise.
    """

    startup: int = 10
    deterministic: bool = False

    def __post_init__(self) -> None:
        require("optuna-gp", self, {"startup": (self.startup >= 1, "must be at least 1")})


class OptunaGpSearcher(Searcher):
    """A Gaussian process over the knobs that all trials share; conditional ones are drawn by chance, as that sampler does."""

    requires = ("optuna", "torch", "scipy")
    extra = "optuna"

    def __init__(self, space: Space, task: Task, seed: int = 0, options: OptunaGpOptions | None = None) -> None:
        self._options = options or OptunaGpOptions()
        self._study = OptunaAdapter("optuna-gp", space, task, seed, self._sampler, _TRIES)

    def ask(self, n: int, given: Config = _NOTHING, pending: Sequence[Proposal] = ()) -> list[Proposal]:
        return self._study.ask(n, given, pending)

    def tell(self, trials: Sequence[Trial]) -> None:
        self._study.tell(trials)

    def _sampler(self, seed: int) -> Any:
        from optuna.samplers import GPSampler

        return GPSampler(
            seed=seed,
            n_startup_trials=self._options.startup,
            deterministic_objective=self._options.deterministic,
            warn_independent_sampling=False,  # of every conditional knob of every proposal
        )


__all__ = ["OptunaGpSearcher"]
