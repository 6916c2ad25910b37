"""Interference: how fast jobs run together on the same GPUs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from autosched.kernel.records import Table
from autoscout.core.errors import ConfigError, Fault

BY_UTILISATION = ((40.0, 0.997), (60.0, 0.987), (80.0, 0.963), (90.0, 0.913), (95.0, 0.876), (float("inf"), 0.791))
"""Mean speed by the joint GPU utilisation of a pair, up to each limit in per cent; used where a pair was never measured."""


@dataclass(frozen=True, eq=False)
class Interference:
    """Measured speeds of pairs, 0 where unknown.

    Attributes:
        models: Names, in the order of the tables.
        joining: `joining[a, b]`: speed of a job of model a that joins one of model b.
        hosting: `hosting[a, b]`: speed of a job of model a that is joined by one of model b.
    """

    models: tuple[str, ...]
    joining: Table
    hosting: Table

    @classmethod
    def none(cls) -> Interference:
        """Nothing measured."""
        return cls((), np.zeros((1, 1)), np.zeros((1, 1)))

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str, float, float]]) -> Interference:
        """From rows of (model a, model b, speed of a with b, speed of b with a).

        Where only one order of a pair was measured it serves for both; two jobs of one model may have two speeds.
        """
        rows = list(pairs)
        bad = [row for row in rows if row[2] <= 0 or row[3] <= 0]
        if bad:
            raise ConfigError(
                Fault(where="colocation pairs", value=str(bad[0]), rule=f"{len(bad)} pairs have a speed that is not above zero")
            )
        models = tuple(dict.fromkeys(name for row in rows for name in row[:2]))
        number_of = {name: number for number, name in enumerate(models)}
        joining = np.zeros((max(1, len(models)), max(1, len(models))))
        hosting = np.zeros_like(joining)
        for one, other, speed, back in rows:
            joining[number_of[one], number_of[other]] = speed
            hosting[number_of[other], number_of[one]] = back
        joining, hosting = np.where(joining > 0, joining, hosting), np.where(hosting > 0, hosting, joining)
        return cls(models, joining, hosting)
