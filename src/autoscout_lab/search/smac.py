"""Searcher `smac`: the random forest, log expected improvement and local search of SMAC3."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscout.core.config import Config, Value
from autoscout.core.errors import require
from autoscout.core.protocols import Searcher
from autoscout.core.seeds import number, stream
from autoscout.core.task import Task
from autoscout.core.trial import Proposal, Trial
from autoscout.learning.answers import AnswerSet
from autoscout.space import Space
from autoscout_lab.configspace import write_configspace
from autoscout_lab.search._shared.adapter import history, propose

_NOTHING = Config()
_SUGGESTIONS = 12  # taken from SMAC for every proposal that is wanted: some are known already
_PERCENTILE = 5  # percentile of the costs that SMAC scales by
_LEAST = 2  # answers that a forest needs, however many proposals are under way
_FORBIDDEN = 100  # more clauses than this make ConfigSpace's neighbourhoods too slow to use


@dataclass(frozen=True, kw_only=True)
class SmacOptions:
    """How SMAC starts and explores.

    Attributes:
        startup: Random configurations first.
        random: Share of proposals that are random afterwards; SMAC's own is 0.2.
        challengers: Random configurations among which local searches start; SMAC's own are 10 000.
    """

    startup: int = 10
    random: float = 0.2
    challengers: int = 10_000

    def __post_init__(self) -> None:
        rules = {
            "startup": (self.startup >= 2, "must be at least 2"),
            "random": (0 <= self.random <= 1, "is a share between 0 and 1"),
            "challengers": (self.challengers >= 1, "must be at least 1"),
        }
        require("smac", self, rules)


class SmacSearcher(Searcher):
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
        self._trials = AnswerSet(space, task.objective)
        self._translated_space: Any = None

    def ask(self, n: int, given: Config = _NOTHING, pending: Sequence[Proposal] = ()) -> list[Proposal]:
        if n < 1:
            return []
        suggestions: Iterator[Mapping[str, Value]] | None = None

        def draw(index: int, attempt: int) -> Mapping[str, Value] | None:
            nonlocal suggestions
            rng = stream(self._seed, "smac", self._trials.count, index, attempt)
            trials = len(self._trials.answers())
            early = trials < _LEAST or trials + index < self._options.startup
            if early or (attempt == 0 and rng.random() < self._options.random):
                return self._space.sample(rng, given)
            if suggestions is None:
                suggestions = iter(self._suggestions(n + len(pending)))
            return next(suggestions, None)

        from joblib import parallel_config

        # SMAC's forest starts a pool of threads for every prediction, which costs more than the prediction
        with warnings.catch_warnings(), parallel_config(backend="sequential"):
            warnings.simplefilter("ignore")
            return propose("smac", n, self._space, self._seed, self._trials, given, pending, draw)

    def tell(self, trials: Sequence[Trial]) -> None:
        self._trials.add(trials)

    def _configspace(self) -> Any:
        if self._translated_space is None:
            from ConfigSpace import ConfigurationSpace

            text = write_configspace(self._space).text
            if text.count('"clauses"') > _FORBIDDEN:
                text = write_configspace(Space([self._space.knobs[name] for name in self._space.declared], facts=self._space.facts)).text
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "space.json"
                file.write_text(text)
                self._translated_space = _drawn_lean(ConfigurationSpace.from_json(file))
        return self._translated_space

    def _suggestions(self, count: int) -> list[Mapping[str, Value]]:
        """The configurations with the best acquisition after a forest was grown from all that was told."""
        from smac import HyperparameterOptimizationFacade as Facade
        from smac import Scenario
        from smac.utils.configspace import convert_configurations_to_array

        space = self._configspace()
        past = history(self._trials)
        configs = [_known_as(config, space) for config, _ in past]
        costs = _scaled(np.array([loss for _, loss in past]))
        seed = number(self._seed, "smac", self._trials.count) % 2**31
        space.seed(seed)  # SMAC draws from the space, which has a generator of its own
        scenario = Scenario(space, deterministic=True, n_trials=100_000, seed=seed)
        model, gain = Facade.get_model(scenario), Facade.get_acquisition_function(scenario)
        search = Facade.get_acquisition_maximizer(scenario, challengers=self._options.challengers)
        _start_in_order(search)
        _grow_lean(model, len(past))
        rows = convert_configurations_to_array(configs)
        model.train(rows, costs.reshape(-1, 1))
        best = int(np.argmin(costs))
        gain.update(model=model, eta=float(costs[best]), incumbent_array=rows[best], num_data=len(costs), X=rows)
        search.acquisition_function = gain
        candidates = search.maximize(previous_configs=configs)
        return [{name: _plain(value) for name, value in dict(config).items()} for config in islice(candidates, _SUGGESTIONS * count)]


def _drawn_lean(space: Any) -> Any:
    """The same space, which draws about as many configurations as it is asked for.

    ConfigSpace draws (clauses and conditions over knobs) squared times as many and throws the rest away: with 48 clauses of 5 knobs that is
    most of the time of a proposal.
    """
    from ConfigSpace import ConfigurationSpace

    class Lean(ConfigurationSpace):
        _drawing = False

        @property
        def forbidden_clauses(self) -> Any:
            every = super().forbidden_clauses  # drawing heeds them elsewhere and only counts these
            return every[: max(0, len(self) - len(self.conditional_hyperparameters))] if self._drawing else every

        def sample_configuration(self, size: int | None = None) -> Any:
            self._drawing = True
            try:
                return super().sample_configuration(size)
            finally:
                self._drawing = False

    if len(space.forbidden_clauses) + len(space.conditional_hyperparameters) <= len(space):
        return space
    lean = Lean(name=space.name)
    lean.add(*space.values(), *space.conditions, *space.forbidden_clauses)
    return lean


def _known_as(config: Mapping[str, Value], space: Any) -> Any:
    """A configuration as SMAC has it: a knob whose condition it could not be told is always active there, and gets its default."""
    from ConfigSpace.util import deactivate_inactive_hyperparameters

    always = {name: space[name].default_value for name in space.unconditional_hyperparameters}
    return deactivate_inactive_hyperparameters({**always, **config}, space)


def _scaled(losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """Costs as SMAC's facade for hyperparameters encodes them: the logarithm of a share of the range, the best not at its very end."""
    low, high = float(losses.min()), float(losses.max())
    low -= float(np.percentile(losses, _PERCENTILE)) - low
    low -= 1e-10 * max(1.0, abs(low))
    scaled: NDArray[np.float64] = np.log((losses - low) / (high - low))
    return scaled


def _start_in_order(search: Any) -> None:
    """Keep the starts of local searches, a set of texts to SMAC, from coming in another order in every process."""
    local = search._local_search
    starts = local._get_init_points_from_previous_configs
    local._get_init_points_from_previous_configs = lambda *known: sorted(starts(*known), key=lambda config: config.get_array().tobytes())


def _grow_lean(model: Any, leaves: int) -> None:
    """Keep trees from reserving room for SMAC's million of leaves, which takes longer than growing them; the trees are the same."""
    if isinstance(model._rf_opts, dict):  # the forest of scikit-learn, not that of pyrfr
        model._rf_opts["max_leaf_nodes"] = max(2, leaves)


def _plain(value: Any) -> Value:
    """Convert numpy's scalars to Python's."""
    plain: Value = value.item() if isinstance(value, np.generic) else value
    return plain


__all__ = ["SmacSearcher"]
