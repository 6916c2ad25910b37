"""What several processes that share a budget of trials leave each other."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Room:
    """How many more trials a budget has room for, as one of several processes sees it.

    Attributes:
        trials: As of the last look at the store; less what was stored since and what others hold now.
        seen: Number that the next trial would have had then.
    """

    trials: int
    seen: int

    def left(self, number: int, others: int) -> int:
        """What is left when the next trial has this number, and others hold this number of slots."""
        return max(0, self.trials - max(0, number - self.seen) - others)


__all__ = ["Room"]
