"""Searcher `smac`: the random forest, log expected improvement and local search of SMAC3."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autoscout.core.config import Config, Value
from autoscout.core.errors import require
from autoscout.core.seeds import number, stream
from autoscout.core.task import Task
from autoscout.core.trial import Proposal, Trial
from autoscout.search._foreign import history, propose
from autoscout.search._told import Told
from autoscout.space import Space
from autoscout.space.interchange import write_configspace

_NOTHING = Config()
_WISHES = 12
_LEAST = 2  # answers that a forest needs, however many proposals are under way
_FORBIDDEN = 100  # more clauses than this make ConfigSpace's neighbourhoods too slow to use


@dataclass(frozen=True, kw_only=True)
class SmacOptions:
    """How SMAC starts and explores.

    Attributes:
        startup: Random configurations first.
        random: Share of proposals that are random afterwards; SMAC's own is 0.2.
    """

    startup: int = 10
    random: float = 0.2

    def __post_init__(self) -> None:
        rules = {"startup": (self.startup >= 2, "must be at least 2"), "random": (0 <= self.random <= 1, "is a share between 0 and 1")}
        require("smac", self, rules)


class SmacSearcher:
    """SMAC3's parts for hyperparameter optimization, without its run loop and its files.

    Conditions become conditions of a ConfigSpace, constraints forbidden clauses where few say it; what SMAC wants beyond them is moved
    to the nearest valid configuration. Failures count as the worst value that worked. Pending proposals are only not repeated.
    """

    requires = ("smac", "ConfigSpace")
    extra = "smac"

    def __init__(self, space: Space, task: Task, seed: int = 0, options: SmacOptions | None = None) -> None:
        self._space = space
        self._seed = seed
        self._options = options or SmacOptions()
        self._told = Told(space, task.objective)
        self._known: Any = None

    def ask(self, n: int, given: Config = _NOTHING, pending: Sequence[Proposal] = ()) -> list[Proposal]:
        if n < 1:
            return []
        wishes: Iterator[Mapping[str, Value]] | None = None

        def draw(place: int, attempt: int) -> Mapping[str, Value] | None:
            nonlocal wishes
            rng = stream(self._seed, "smac", self._told.count, place, attempt)
            known = len(self._told.answers())
            early = known < _LEAST or known + place < self._options.startup
            if early or (attempt == 0 and rng.random() < self._options.random):
                return self._space.sample(rng, given)
            if wishes is None:
                wishes = iter(self._wishes(n + len(pending)))
            return next(wishes, None)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return propose("smac", n, self._space, self._seed, self._told, given, pending, draw)

    def tell(self, trials: Sequence[Trial]) -> None:
        self._told.add(trials)

    def _configspace(self) -> Any:
        if self._known is None:
            from ConfigSpace import ConfigurationSpace

            text = write_configspace(self._space).text
            if text.count('"clauses"') > _FORBIDDEN:
                text = write_configspace(Space([self._space.knobs[name] for name in self._space.declared], facts=self._space.facts)).text
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "space.json"
                file.write_text(text)
                self._known = ConfigurationSpace.from_json(file)
        return self._known

    def _wishes(self, wanted: int) -> list[Mapping[str, Value]]:
        """The configurations with the best acquisition after a forest was grown from all that was told."""
        from ConfigSpace import Configuration
        from ConfigSpace.util import deactivate_inactive_hyperparameters
        from smac import HyperparameterOptimizationFacade as Facade
        from smac import Scenario
        from smac.utils.configspace import convert_configurations_to_array

        space = self._configspace()
        told = history(self._told)
        configs = [deactivate_inactive_hyperparameters(dict(config), space) for config, _ in told]
        losses = np.array([loss for _, loss in told])
        costs = np.log(losses - min(0.0, float(losses.min())) + 1e-9 * (1.0 + float(np.abs(losses).max())))
        seed = number(self._seed, "smac", self._told.count) % 2**31
        space.seed(seed)  # SMAC draws from the space, which has a generator of its own
        scenario = Scenario(space, deterministic=True, n_trials=100_000, seed=seed)
        model, gain, search = (
            Facade.get_model(scenario),
            Facade.get_acquisition_function(scenario),
            Facade.get_acquisition_maximizer(scenario),
        )
        rows = convert_configurations_to_array(configs)
        model.train(rows, costs.reshape(-1, 1))
        best = int(np.argmin(costs))
        gain.update(model=model, eta=float(costs[best]), incumbent_array=rows[best], num_data=len(costs), X=rows)
        search.acquisition_function = gain
        found: list[Mapping[str, Value]] = []
        for config in search.maximize(previous_configs=configs, n_points=_WISHES * wanted):
            assert isinstance(config, Configuration)
            found.append({name: _plain(value) for name, value in dict(config).items()})
            if len(found) == _WISHES * wanted:
                break
        return found


def _plain(value: Any) -> Value:
    """Without numpy's own types."""
    found: Value = value.item() if isinstance(value, np.generic) else value
    return found


__all__ = ["SmacSearcher"]
