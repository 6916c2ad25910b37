"""A list of configurations as columns, one per knob, that answer questions about all of them at once.

A set of rows is one whole number, row i its bit i: a few machine words joined by `&` decide what a partial assignment leaves,
which for ten thousands of rows is faster than arrays of truths.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autoscout.core.config import Value
from autoscout.space.knobs import Knob

Positions = NDArray[np.int64]
"""Positions of values in their knobs, a row per configuration, a column per knob; -1 where a knob is inactive."""

INACTIVE = -1
_TRIED = 64  # values that are tried one by one; with more, the rows are listed


def rows_of(bits: int, size: int) -> NDArray[np.int64]:
    """The rows of a set, ascending."""
    packed = np.frombuffer(bits.to_bytes((size + 7) // 8, "little"), dtype=np.uint8)
    return np.flatnonzero(np.unpackbits(packed, count=size, bitorder="little"))


def bits_of(truths: NDArray[np.bool_]) -> int:
    """The set of the rows that are true."""
    return int.from_bytes(np.packbits(truths, bitorder="little").tobytes(), "little")


class ListedColumn:
    """The values of one knob in all rows.

    Attributes:
        knob: Whose values.
        active: The rows that have a value.
    """

    def __init__(self, knob: Knob, positions: NDArray[np.int64]) -> None:
        self.knob = knob
        occurring, places = np.unique(positions, return_inverse=True)
        if len(occurring) and occurring[0] == INACTIVE:
            occurring, places = occurring[1:], places - 1
        self._positions: NDArray[np.int64] = occurring  # positions that occur, ascending
        self._places: NDArray[np.intp] = np.ascontiguousarray(places.reshape(-1))  # by row, the index of its position in _seen; -1 inactive
        self._place_of = {int(position): place for place, position in enumerate(occurring)}
        self._bits: list[int | None] = [None] * len(occurring)
        self.active = bits_of(self._places >= 0)

    def having(self, position: int | None) -> int:
        """The rows with a value at a position."""
        place = None if position is None else self._place_of.get(position)
        return 0 if place is None else self._at(place)

    def _at(self, place: int) -> int:
        bits = self._bits[place]
        if bits is None:
            bits = self._bits[place] = bits_of(self._places == place)
        return bits

    def values(self, rows: int) -> tuple[Value, ...]:
        """The values that some rows hold, in the order of the knob."""
        held = self.knob.values
        if len(self._positions) <= _TRIED:
            return tuple(held[int(self._positions[place])] for place in range(len(self._positions)) if rows & self._at(place))
        places = np.unique(self._places[rows_of(rows, len(self._places))])
        return tuple(held[int(self._positions[place])] for place in places if place >= 0)

    def distances(self, position: int, rows: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
        """How far each row is from a position (-1 for inactive), from 0 to 1.

        Ranks of ordered values are spread evenly from 0 to 1; other values, and a knob that only one side has, are 1 apart.
        """
        gaps = np.ones(len(self._positions) + 1)  # the last one for inactive rows, which are at place -1
        if position < 0:
            gaps[-1] = 0.0
        elif self.knob.ordered:
            gaps[:-1] = np.abs(self._positions - position) / max(1, len(self.knob.values) - 1)
        elif (place := self._place_of.get(position)) is not None:
            gaps[place] = 0.0
        return gaps[self._places if rows is None else self._places[rows]]


def encoded(knobs: Sequence[Knob], configs: Sequence[dict[str, Value]]) -> tuple[Positions, set[int]]:
    """The positions of all configurations, and which of them name an unknown knob or value."""
    positions = np.full((len(configs), len(knobs)), INACTIVE, dtype=np.int64)
    strange: set[int] = set()
    named = np.zeros(len(configs), dtype=np.int64)
    for column, knob in enumerate(knobs):
        name, position = knob.name, knob.position
        for row, config in enumerate(configs):
            if name in config:
                place = position(config[name])
                named[row] += 1
                if place is None:
                    strange.add(row)
                else:
                    positions[row, column] = place
    strange.update(row for row, config in enumerate(configs) if len(config) != named[row])
    return positions, strange
