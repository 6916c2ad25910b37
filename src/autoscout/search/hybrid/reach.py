"""Where a proposal is answered by the nearest of few possible configurations: a sparse table, an engine that rounds what it is given."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoscout.core.config import Config
from autoscout.search.hybrid.encode import Codes, Encoder, Floats, Rows


class Reach:
    """The chance that a proposal is answered by something new.

    How far proposals were from their answers says how far the nearest possible configuration usually is; a proposal that is nearer
    than that to a known one will be answered by it.

    Args:
        encoder: Of the space.
        pairs: What was asked for, and what was measured in its place.
        known: Rows with an answer.
    """

    def __init__(self, encoder: Encoder, pairs: Sequence[tuple[Config, Config]], known: Rows) -> None:
        self._encoder = encoder
        self._known = known.codes
        codes = ((encoder.codes(asked), encoder.codes(given)) for asked, given in pairs)
        far = [self._gaps(one[None, :], two[None, :])[0, 0] for one, two in codes if one is not None and two is not None]
        self._far: Floats = np.sort(np.array(far, dtype=np.float64))

    def chance(self, rows: Rows) -> Floats:
        """Of a new answer, for each row."""
        if not len(self._far) or not len(self._known):
            return np.ones(len(rows))
        nearest = self._gaps(rows.codes, self._known).min(axis=1)
        found: Floats = (np.searchsorted(self._far, nearest) + 0.5) / (len(self._far) + 1.0)
        return found

    def _gaps(self, one: Codes, other: Codes) -> Floats:
        """Distances: by rank for ordered knobs, 1 for different categories, summed."""
        found = np.zeros((len(one), len(other)), dtype=np.float32)
        for index, size in enumerate(self._encoder.sizes):
            left, right = one[:, index, None], other[None, :, index]
            if self._encoder.ordered[index]:
                found += np.abs(left - right).astype(np.float32) / np.float32(size - 1)
            else:
                found += left != right
        return found.astype(np.float64)
