"""Options of `hybrid`."""

from __future__ import annotations

from dataclasses import dataclass

from autoscout.core.errors import ConfigError, Fault
from autoscout.search.hybrid.past import Past


@dataclass(frozen=True, kw_only=True)
class HybridOptions:
    """What `hybrid` is made of; every part can be switched off.

    Attributes:
        start: Configurations spread over the space before the model is asked: the default, the best of similar past studies, then
            those farthest from all others.
        cautious: Follow a young model less, the more knobs it changes at once.
        elsewhere: Look into structures that were seldom tried now and then, while nothing better is found.
        trees: Size of the forest that is mixed into the Gaussian process; 0 for none.
        forest_weight: Its share.
        failures: Learn where configurations fail, and weigh every candidate by its chance of success.
        tree: Choose structures by tree search, with the model's acquisition as prior; off: the best acquisition anywhere.
        tournament: Let several orderings of the tree compete; off: the knobs by falling sensitivity.
        orderings: K, how many enter.
        orchestrator: Let a bandit give steps to refinement around the incumbent; off: the acquisition alone decides.
        sparse_only: Keep the dense knobs at the default's values.
        dense_only: Keep the structure of the default.
        stop_gain: Propose nothing more once no candidate is expected to gain this share of the best loss; 0 goes on to the end.
        stop_failing: Propose nothing more once all that is left may well fail and promises less than a hundredth of the best loss.
        past: Similar past studies to learn from (see `autoscout.search.hybrid.past.recall`).
    """

    start: int = 4
    cautious: bool = True
    elsewhere: bool = True
    trees: int = 0
    forest_weight: float = 0.3
    failures: bool = True
    tree: bool = True
    tournament: bool = True
    orderings: int = 5
    orchestrator: bool = False
    sparse_only: bool = False
    dense_only: bool = False
    stop_gain: float = 0.0
    stop_failing: bool = True
    past: tuple[Past, ...] = ()

    def __post_init__(self) -> None:
        rules = {
            "start": (self.start >= 1, "must be at least 1"),
            "trees": (self.trees >= 0, "must not be negative"),
            "forest_weight": (0.0 <= self.forest_weight <= 1.0, "must lie between 0 and 1"),
            "orderings": (self.orderings >= 1, "must be at least 1"),
            "dense_only": (not (self.sparse_only and self.dense_only), "sparse_only and dense_only exclude each other"),
            "stop_gain": (self.stop_gain >= 0.0, "must not be negative"),
        }
        faults = [
            Fault(where="hybrid", field=name, value=repr(getattr(self, name)), rule=rule)
            for name, (good, rule) in rules.items()
            if not good
        ]
        if faults:
            raise ConfigError(faults)
