"""Searcher `optuna-tpe`: Optuna's tree-structured Parzen estimator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from autoscout.core.config import Config
from autoscout.core.errors import require
from autoscout.core.protocols import Searcher
from autoscout.core.task import Task
from autoscout.core.trial import Proposal, Trial
from autoscout.space import Space
from autoscout_lab.search._shared.optuna import OptunaAdapter

_NOTHING = Config()


@dataclass(frozen=True, kw_only=True)
class OptunaTpeOptions:
    """Options of Optuna's `TPESampler`.

    Attributes:
        startup: Random trials first.
        candidates: Draws of which the best is taken.
        multivariate: Model knobs together; conditional knobs are then modelled in groups.
    """

    startup: int = 10
    candidates: int = 24
    multivariate: bool = False

    def __post_init__(self) -> None:
        rules = {"startup": (self.startup >= 1, "must be at least 1"), "candidates": (self.candidates >= 1, "must be at least 1")}
        require("optuna-tpe", self, rules)


class OptunaTpeSearcher(Searcher):
    """TPE, for one goal or several; failures count as the worst values that worked, pending proposals as bad ones (constant liar)."""

    requires = ("optuna",)
    extra = "optuna"
    takes_several_goals: ClassVar[bool] = True

    def __init__(self, space: Space, task: Task, seed: int = 0, options: OptunaTpeOptions | None = None) -> None:
        self._options = options or OptunaTpeOptions()
        self._study = OptunaAdapter("optuna-tpe", space, task, seed, self._sampler)

    def ask(self, n: int, given: Config = _NOTHING, pending: Sequence[Proposal] = ()) -> list[Proposal]:
        return self._study.ask(n, given, pending)

    def tell(self, trials: Sequence[Trial]) -> None:
        self._study.tell(trials)

    def _sampler(self, seed: int) -> Any:
        from optuna.samplers import TPESampler

        together = self._options.multivariate
        return TPESampler(
            seed=seed,
            n_startup_trials=self._options.startup,
            n_ei_candidates=self._options.candidates,
            multivariate=together,
            group=together,
            constant_liar=True,
        )


__all__ = ["OptunaTpeSearcher"]
