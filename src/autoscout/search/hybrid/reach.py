"""Where a proposal is answered by the nearest of few possible configurations: a record of measurements, an engine that rounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autoscout.core.config import Config
from autoscout.space.encode import Codes, Encoder, Floats, Rows

WEIGHED, DRAWN = 30, 10
"""So many of the most promising proposals are judged by their answers, and so many answers are imagined for each."""


class Reach:
    """What a proposal will be answered by, as far as earlier answers tell: off by as much, in the same knobs, as one of them was.

    A model may expect much of one exact point. Where its neighbours are bad and the answer will be some neighbour, that is worth
    nothing; a place with good surroundings is worth more. Known answers are not avoided: a record gives them for nothing, and keeping
    away from them is keeping away from the good ones.

    Args:
        encoder: Of the space.
        pairs: What was asked for, and what was measured in its place.
    """

    def __init__(self, encoder: Encoder, pairs: Sequence[tuple[Config, Config]]) -> None:
        self._encoder = encoder
        codes = [(encoder.codes(asked), encoder.codes(given)) for asked, given in pairs]
        known = [(asked, given) for asked, given in codes if asked is not None and given is not None]
        self._asked: Codes = np.array([asked for asked, _ in known], dtype=np.int64).reshape(-1, len(encoder.names))
        self._given: Codes = np.array([given for _, given in known], dtype=np.int64).reshape(-1, len(encoder.names))

    def likely(self, rows: Rows, rng: np.random.Generator) -> tuple[Rows, int]:
        """Answers to expect: those to all rows after one earlier example, then after the next; and how many examples there are."""
        count = min(DRAWN, len(self._asked))
        if not count:
            return rows, 1
        picked = rng.choice(len(self._asked), size=count, replace=False)
        codes = np.concatenate([self._moved(rows.codes, self._asked[pick], self._given[pick]) for pick in picked])
        return Rows(codes, self._encoder.plain(codes), self._encoder.effects(codes)[0]), count

    def _moved(self, codes: Codes, asked: Codes, given: Codes) -> Codes:
        """Rows, moved as `given` is from `asked`: by as many places, back from the ends; other categories as given there."""
        top, ordered = self._encoder.sizes - 1, self._encoder.ordered
        both = (asked >= 0) & (given >= 0) & (asked != given)
        moved = np.abs(codes + given - asked)
        moved = np.where(moved > top, 2 * top - moved, moved)
        return np.where((codes >= 0) & both, np.where(ordered, moved, given), codes)


def promising(acquisition: Floats) -> NDArray[np.int64]:
    """The rows that are judged by their answers."""
    return np.argsort(-acquisition, kind="stable")[:WEIGHED]
