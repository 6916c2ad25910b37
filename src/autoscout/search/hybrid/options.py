"""Options of `hybrid`."""

from __future__ import annotations

from dataclasses import dataclass

from autoscout.core.errors import require
from autoscout.core.history import Past


@dataclass(frozen=True, kw_only=True)
class HybridOptions:
    """What can be said about a search beforehand.

    Attributes:
        start: Configurations before the model is asked: the default, the best of similar past studies, then ones far from all others.
        cautious: Try what may well fail only when nothing else is left; for systems where a failure is expensive.
        stop_gain: Propose nothing more once no candidate is expected to gain this share of the best loss; 0 never ends for that.
        past: Similar past studies to learn from (see `autoscout.core.history.recall`).
    """

    start: int = 4
    cautious: bool = False
    stop_gain: float = 0.0
    past: tuple[Past, ...] = ()

    def __post_init__(self) -> None:
        rules = {"start": (self.start >= 1, "must be at least 1"), "stop_gain": (self.stop_gain >= 0.0, "must not be negative")}
        require("hybrid", self, rules)
