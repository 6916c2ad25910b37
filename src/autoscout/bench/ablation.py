"""The paper's ablations as lists of entries for a race: which parts of the search earn their keep."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """Variants that are raced against each other."""

    searchers: tuple[str, ...]
    tables: str
    help: str


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
    "parts": Ablation(
        searchers=("hybrid", *(f"hybrid:{part}" for part in (*_OFF, "tree=false", "failures=false", "trees=0"))),
        tables=_FULL,
        help="our own search: each part switched off in turn",
    ),
}
"""Name -> what to run."""
