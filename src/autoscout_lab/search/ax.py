"""Searcher `ax`: Ax with BoTorch, Meta's Bayesian optimization."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from autoscout.core.config import Config, Value
from autoscout.core.errors import require
from autoscout.core.protocols import Searcher
from autoscout.core.seeds import number
from autoscout.core.task import Task
from autoscout.core.trial import Proposal, Trial
from autoscout.learning.answers import AnswerSet
from autoscout.space import Knob, Space
from autoscout_lab.search._shared.adapter import FEW_TRIES, Flat, history, in_turn, propose

_NOTHING = Config()
_METRIC = "loss"


@dataclass(frozen=True, kw_only=True)
class AxOptions:
    """Options of Ax's generation strategy.

    Attributes:
        startup: Quasi-random trials first.
        method: Ax's own words: `fast` or `quality`.
    """

    startup: int = 5
    method: str = "fast"

    def __post_init__(self) -> None:
        rules = {
            "startup": (self.startup >= 2, "must be at least 2"),
            "method": (self.method in ("fast", "quality", "random_search"), "must be fast, quality or random_search"),
        }
        require("ax", self, rules)


class AxSearcher(Searcher):
    """Ax over the flat space: ordered knobs are integer ranges over their positions, inactive ones are at their default.

    Ax cannot express products and conditions; what it suggests is moved to the nearest valid configuration, and it is told what was
    measured. Failures count as the worst value that worked.
    """

    requires = ("ax", "botorch")
    extra = "ax"

    def __init__(self, space: Space, task: Task, seed: int = 0, options: AxOptions | None = None) -> None:
        self._space = space
        self._seed = seed
        self._options = options or AxOptions()
        self._trials = AnswerSet(space, task.objective)
        self._flat = Flat(space)
        self._past: Any = None  # a client that is told and never asked
        self._inside: list[tuple[Config, float]] = []  # what it was told

    def ask(self, n: int, given: Config = _NOTHING, pending: Sequence[Proposal] = ()) -> list[Proposal]:
        if n < 1:
            return []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from ax.utils.common.logger import set_ax_logger_levels

            set_ax_logger_levels(logging.ERROR)
            draw = in_turn(lambda: self._suggestions(given, pending))
            return propose("ax", n, self._space, self._seed, self._trials, given, pending, draw, FEW_TRIES)

    def tell(self, trials: Sequence[Trial]) -> None:
        self._trials.add(trials)

    def _suggestions(self, given: Config, pending: Sequence[Proposal]) -> Iterator[Mapping[str, Value]]:
        """What a client that has heard all that was told wants next; nothing more once Ax itself gives up."""
        if not self._flat.names:
            return
        from ax.utils.common.random import with_rng_seed

        fixed = {key: value for key, value in self._flat.positions(given).items() if self._flat.names[key] in given} or None
        past = history(self._trials)
        if len(past) < self._options.startup:
            yield from islice(self._spread(fixed), len(past) + len(pending), None)
        client = self._asked(past)
        for proposal in pending:
            if not self._space.check(proposal.config):
                client.attach_trial(self._flat.positions(proposal.config))
        seed = number(self._seed, "ax", self._trials.count) % 2**31
        while True:
            try:
                with with_rng_seed(seed):
                    (suggestion,) = client.get_next_trials(max_trials=1, fixed_parameters=fixed).values()
            except Exception:  # Ax raises many kinds for exhausted or degenerate data; random configurations take over then
                return
            yield self._flat.values(suggestion)

    def _spread(self, fixed: dict[str, int] | None) -> Iterator[Mapping[str, Value]]:
        """Ax's start, the same however often it is asked for: the middle and then a Sobol sequence."""
        client = self._client()
        seed = number(self._seed, "ax", "start") % 2**31
        client.configure_generation_strategy(method="random_search", initialization_random_seed=seed)
        while True:
            try:
                (suggestion,) = client.get_next_trials(max_trials=1, fixed_parameters=fixed).values()
            except Exception:  # a small space has an end
                return
            yield self._flat.values(suggestion)

    def _asked(self, past: list[tuple[Config, float]]) -> Any:
        """A client to be asked: a copy, since Ax remembers what it was asked for, with a strategy that has forgotten its fits."""
        if self._past is None or past[: len(self._inside)] != self._inside:
            self._past, self._inside = self._client(), []
        for config, loss in past[len(self._inside) :]:
            self._past.complete_trial(self._past.attach_trial(self._flat.positions(config)), raw_data={_METRIC: loss})
        self._inside = past
        client = copy.deepcopy(self._past)
        client.configure_generation_strategy(method=self._options.method, initialization_budget=0)
        return client

    def _client(self) -> Any:
        from ax.api.client import Client
        from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig

        def parameter(key: str, knob: Knob) -> Any:
            if knob.ordered:
                return RangeParameterConfig(name=key, bounds=(0, len(knob.values) - 1), parameter_type="int")
            return ChoiceParameterConfig(name=key, values=list(range(len(knob.values))), parameter_type="int", is_ordered=False)

        client = Client()
        client.configure_experiment(parameters=[parameter(key, knob) for key, knob in self._flat.knobs.items()])
        client.configure_optimization(objective=f"-{_METRIC}")
        return client


__all__ = ["AxSearcher"]
