"""Which optimizer gets the next iteration (paper section 3.3): UCB1 over {SPARSE, DENSE} on difference-of-differences rewards."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Arm(StrEnum):
    """The two optimizers."""

    SPARSE = "sparse"
    DENSE = "dense"


@dataclass(frozen=True)
class Quad:
    """Costs of the 2x2 grid of base/candidate structures and base/candidate dense points; the first letter is the structure's."""

    bb: float
    bc: float
    cb: float
    cc: float

    def gain(self, arm: Arm) -> float:
        """The arm's marginal improvement relative to the base, free of what the other arm contributed.

        Bounded to [-1, 1]: one absurd measurement must not decide the bandit for good.
        """
        if self.bb <= 0:
            return 0.0
        if arm is Arm.SPARSE:
            found = ((self.bb - self.cb) + (self.bc - self.cc)) / (2 * self.bb)
        else:
            found = ((self.bb - self.bc) + (self.cb - self.cc)) / (2 * self.bb)
        return max(-1.0, min(1.0, found))


def choose(pulls: Iterable[tuple[Arm, float]], exploration: float, decay: float) -> Arm:
    """UCB1 with C(t) = C0 * decay^t; an arm that was never pulled comes first, SPARSE before DENSE.

    Args:
        pulls: The arms pulled so far with their rewards.
        exploration: C0.
        decay: gamma.
    """
    totals = dict.fromkeys(Arm, 0.0)
    counts = dict.fromkeys(Arm, 0)
    for arm, reward in pulls:
        totals[arm] += reward
        counts[arm] += 1
    for arm in Arm:
        if counts[arm] == 0:
            return arm
    total = sum(counts.values())
    strength = exploration * decay**total

    def bound(arm: Arm) -> float:
        return totals[arm] / counts[arm] + strength * math.sqrt(math.log(total) / counts[arm])

    return max(Arm, key=bound)
