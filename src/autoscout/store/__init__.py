"""What happened, kept: one module per store."""

from __future__ import annotations

from autoscout.core.history import best_of, bring, similar, trials_of

__all__ = ["best_of", "bring", "similar", "trials_of"]
