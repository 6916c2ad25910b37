"""Which optimizer gets the next iteration (paper section 3.3): UCB1 over {SPARSE, DENSE} on difference-of-differences rewards."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


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

        Bounded to [-1, 1]: one absurd measurement must not decide the bandit permanently.
        """
        if self.bb <= 0:
            return 0.0
        if arm is Arm.SPARSE:
            gain = ((self.bb - self.cb) + (self.bc - self.cc)) / (2 * self.bb)
        else:
            gain = ((self.bb - self.bc) + (self.cb - self.cc)) / (2 * self.bb)
        return max(-1.0, min(1.0, gain))


class Pull(NamedTuple):
    """One iteration given to an arm, and what it earned.

    Attributes:
        arm: Which.
        gain: Its difference of differences.
        weight: How far it counts; less than 1 for what a simulator answered, once the real system does (weak priors).
    """

    arm: Arm
    gain: float
    weight: float = 1.0


def choose(pulls: Iterable[Pull], exploration: float, decay: float) -> Arm:
    """UCB1 with C(t) = C0 * decay^t; an arm that was never pulled comes first, SPARSE before DENSE.

    Args:
        pulls: The arms pulled so far with their rewards.
        exploration: C0.
        decay: gamma.
    """
    totals = dict.fromkeys(Arm, 0.0)
    counts = dict.fromkeys(Arm, 0.0)
    iterations = 0
    for arm, gain, weight in pulls:
        totals[arm] += weight * gain
        counts[arm] += weight
        iterations += 1
    for arm in Arm:
        if counts[arm] == 0:
            return arm
    strength = exploration * decay**iterations
    width = max(0.0, math.log(sum(counts.values())))

    def bound(arm: Arm) -> float:
        return totals[arm] / counts[arm] + strength * math.sqrt(width / counts[arm])

    return max(Arm, key=bound)
