"""Searcher `ax`: Ax with BoTorch, Meta's Bayesian optimization."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autoscout.core.config import Config, Value
from autoscout.core.errors import require
from autoscout.core.seeds import number
from autoscout.core.task import Task
from autoscout.core.trial import Proposal, Trial
from autoscout.search._foreign import DEAR_TRIES, Flat, history, in_turn, propose
from autoscout.search._told import Told
from autoscout.space import Knob, Space

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


class AxSearcher:
    """Ax over the flat space: ordered knobs are integer ranges over their positions, inactive ones stand at their default.

    Products and conditions Ax cannot be told; its wishes are moved to the nearest valid configuration, and it is told what was
    measured. Failures count as the worst value that worked.
    """

    requires = ("ax", "botorch")
    extra = "ax"

    def __init__(self, space: Space, task: Task, seed: int = 0, options: AxOptions | None = None) -> None:
        self._space = space
        self._seed = seed
        self._options = options or AxOptions()
        self._told = Told(space, task.objective)
        self._flat = Flat(space)

    def ask(self, n: int, given: Config = _NOTHING, pending: Sequence[Proposal] = ()) -> list[Proposal]:
        if n < 1:
            return []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from ax.utils.common.logger import set_ax_logger_levels

            set_ax_logger_levels(logging.ERROR)
            draw = in_turn(lambda: self._wishes(given, pending))
            return propose("ax", n, self._space, self._seed, self._told, given, pending, draw, DEAR_TRIES)

    def tell(self, trials: Sequence[Trial]) -> None:
        self._told.add(trials)

    def _wishes(self, given: Config, pending: Sequence[Proposal]) -> Iterator[Mapping[str, Value]]:
        """What a fresh client wants next, after hearing all that was told; nothing more once Ax itself gives up."""
        if not self._flat.names:
            return
        told = history(self._told)
        client = self._client(started=len(told) >= self._options.startup)
        for config, loss in told:
            client.complete_trial(client.attach_trial(self._flat.positions(config)), raw_data={_METRIC: loss})
        for proposal in pending:
            if not self._space.check(proposal.config):
                client.attach_trial(self._flat.positions(proposal.config))
        fixed = {key: value for key, value in self._flat.positions(given).items() if self._flat.names[key] in given}
        while True:
            try:
                (wish,) = client.get_next_trials(max_trials=1, fixed_parameters=fixed or None).values()
            except Exception:  # Ax raises many kinds for exhausted or degenerate data; chance goes on where it cannot
                return
            yield self._flat.values(wish)

    def _client(self, started: bool) -> Any:
        from ax.api.client import Client
        from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig

        def parameter(key: str, knob: Knob) -> Any:
            if knob.ordered:
                return RangeParameterConfig(name=key, bounds=(0, len(knob.values) - 1), parameter_type="int")
            return ChoiceParameterConfig(name=key, values=list(range(len(knob.values))), parameter_type="int", is_ordered=False)

        client = Client(random_seed=number(self._seed, "ax", self._told.count) % 2**31)
        client.configure_experiment(parameters=[parameter(key, knob) for key, knob in self._flat.knobs.items()])
        client.configure_optimization(objective=f"-{_METRIC}")
        startup = 0 if started else self._options.startup  # a client that is told everything at once would start again
        client.configure_generation_strategy(method=self._options.method, initialization_budget=startup)
        return client


__all__ = ["AxSearcher"]
