"""The paper's ablations as lists of entries for a race: which parts of the search earn their keep."""

from __future__ import annotations

from dataclasses import dataclass, replace

from autoscout.bench.assisted import Assistance
from autoscout.bench.race import Entry


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """Variants that are raced against each other."""

    searchers: tuple[str, ...]
    tables: str
    help: str
    noises: tuple[float, ...] = ()  # each searcher also behind simulators that are so far off

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Who runs."""
        plain = [Entry.parse(text) for text in self.searchers]
        assisted = [
            replace(entry, label=f"{entry.label}, simulators {noise:.0%} off", assistance=Assistance(noise=noise))
            for entry in plain
            for noise in self.noises
        ]
        return (*plain, *assisted)


_SIZES = (1, 5, 10, 20, 40)
_FULL = "synthetic:megatron-full"
_OFF = ("sparse_only=true", "dense_only=true", "orchestrator=false", "tournament=false")

ABLATIONS = {
    "breakdown": Ablation(
        searchers=("hybrid-paper", *(f"hybrid-paper:{part}" for part in _OFF)),
        tables=_FULL,
        help="the paper's algorithm: sparse only, dense only, no orchestrator, no tournament (its Figure 8)",
    ),
    "tournament": Ablation(
        searchers=tuple(f"hybrid-paper:orderings={size}" for size in _SIZES),
        tables=_FULL,
        help="the paper's algorithm: number of candidate trees K (its Figure 9)",
    ),
    "spaces": Ablation(
        searchers=("hybrid", "hybrid-paper", "random"),
        tables="synthetic",
        help="3dp, 5dp and full spaces (the paper's Figure 10)",
    ),
    "noise": Ablation(
        searchers=("hybrid-paper",),
        tables=_FULL,
        help="the paper's algorithm behind simulators that are 0, 40, 80 % off, and profiling only (its Figures 8 and 11)",
        noises=(0.0, 0.4, 0.8),
    ),
    "parts": Ablation(
        searchers=("hybrid", *(f"hybrid:{part}" for part in (*_OFF, "tree=false", "failures=false", "trees=0"))),
        tables=_FULL,
        help="our own search: each part switched off in turn",
    ),
}
"""Name -> what to run."""
