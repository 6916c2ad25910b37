"""Configurations as rows of numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoscout.core.config import Config
from autoscout.space import Knob, Space
from autoscout.space.values import Steps

Codes = NDArray[np.int64]
Floats = NDArray[np.float64]

MAX_COSINES = 6
"""How many cosines describe the effect of one ordered knob; more are finer than few trials can tell."""
MAX_LISTED_VALUES = 10_000
"""Values of a range that are listed with a number for each; of a longer one they are worked out when asked for."""
MAX_GRAIN = 6
"""Multiples of more than two to this power are as round as it gets."""


@dataclass(frozen=True)
class Rows:
    """Configurations in all the forms that models read; made once, taken apart and joined cheaply.

    Attributes:
        codes: Positions of the values, -1 where inactive.
        plain: Columns for distances, see `Encoder.plain`.
        effects: Columns for single knobs' effects, see `Encoder.effects`.
    """

    codes: Codes
    plain: Floats
    effects: Floats

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, which: NDArray[np.int64] | Sequence[int]) -> Rows:
        index = np.asarray(which, dtype=np.int64)
        return Rows(self.codes[index], self.plain[index], self.effects[index])

    @staticmethod
    def join(parts: Sequence[Rows]) -> Rows:
        if len(parts) == 1:
            return parts[0]
        return Rows(
            np.concatenate([part.codes for part in parts]),
            np.concatenate([part.plain for part in parts]),
            np.concatenate([part.effects for part in parts]),
        )


def gates(space: Space) -> tuple[str, ...]:
    """The knobs on which it depends whether others are active, ancestors first."""
    read = {parent for name in space.knobs for parent in space.parents(name)}
    return tuple(name for name in space.knobs if name in read)


class Encoder:
    """Position of every knob's value, -1 where inactive; and from these the columns that models read.

    A knob is *ordered* for the models when its values are numbers that ascend, whether or not it is declared dense.

    Attributes:
        names: The knobs with more than one value, in the order of the columns.
        sizes: How many values each has.
        ordered: Whether neighbouring values are alike.
        sparse: Whether it is part of the structure.
        gates: Whether other knobs are active or not by it.
        group: For every column of `plain`, the knob it belongs to; numbers past the knobs are the grains of some.
        groups: How many such numbers there are.
        middle: For every column of `plain`, the middle of its values.
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        self.names = tuple(name for name, knob in space.knobs.items() if len(knob.values) > 1 or knob.when)
        knobs = [space.knobs[name] for name in self.names]
        self.sizes = np.array([len(knob.values) for knob in knobs], dtype=np.int64)
        self.ordered = np.array([knob.ordered and len(knob.values) > 2 for knob in knobs], dtype=bool)
        self.sparse = np.array([knob.sparse for knob in knobs], dtype=bool)
        above = gates(space)
        self.gates = np.array([name in above for name in self.names], dtype=bool)
        self.defaults = np.array([knob.position(knob.default) or 0 for knob in knobs], dtype=np.int64)
        self._places = [_places(knob) for knob in knobs]
        widths = [self._width(index) for index in range(len(knobs))]
        self._grains = [(index, grain) for index, knob in enumerate(knobs) if self.ordered[index] and (grain := _grain(knob)) is not None]
        self.groups = len(knobs) + len(self._grains)
        self.group = np.concatenate([np.repeat(np.arange(len(knobs)), widths), np.arange(len(knobs), self.groups)]).astype(np.int64)
        middles = [np.full(width, 0.5 if width == 1 else np.sqrt(0.5) / width) for width in widths]
        self.middle: Floats = np.concatenate([*middles, np.full(len(self._grains), 0.5)])
        self.owner = self.effects(np.zeros((1, len(knobs)), dtype=np.int64))[1]
        self._encoded: dict[Config, Codes | None] = {}

    def _width(self, index: int) -> int:
        """Columns of a knob: one for an ordered knob or a pair, one each for more categories."""
        return 1 if self.ordered[index] or self.sizes[index] <= 2 else int(self.sizes[index])

    def codes(self, config: Config) -> Codes | None:
        """Positions of the values of one configuration; None when it is not of this space."""
        if config not in self._encoded:
            self._encoded[config] = self._codes(config)
        return self._encoded[config]

    def _codes(self, config: Config) -> Codes | None:
        row = np.full(len(self.names), -1, dtype=np.int64)
        knobs = self.space.knobs
        for name in config:
            if name not in knobs:
                return None
        for index, name in enumerate(self.names):
            if name in config:
                position = knobs[name].position(config[name])
                if position is None:
                    return None
                row[index] = position
        return row

    def rows(self, configs: Iterable[Config]) -> Rows:
        """Rows of configurations; those that are not of this space are left out."""
        rows = [row for config in configs if (row := self.codes(config)) is not None]
        codes = np.array(rows, dtype=np.int64).reshape(len(rows), len(self.names))
        return Rows(codes, self.plain(codes), self.effects(codes)[0])

    def unit(self, codes: Codes) -> Floats:
        """Places on [0, 1]; an inactive knob is where its default would be, because it acts like the engine's own choice."""
        filled = np.where(codes < 0, self.defaults, codes)
        units = np.empty(codes.shape)
        for index, places in enumerate(self._places):
            units[:, index] = places.at(filled[:, index])
        return units

    def plain(self, codes: Codes) -> Floats:
        """Columns whose squared differences, summed over a knob's columns, are its squared distance: at most 1."""
        unit = self.unit(codes)
        columns = []
        for index in range(len(self.names)):
            if self._width(index) == 1:
                columns.append(unit[:, index : index + 1])
            else:
                hot = codes[:, index : index + 1] == np.arange(self.sizes[index])
                columns.append(hot * np.sqrt(0.5))
        filled = np.where(codes < 0, self.defaults, codes)
        columns += [grain.at(filled[:, index])[:, None] for index, grain in self._grains]
        return np.concatenate(columns, axis=1) if columns else np.zeros((len(codes), 0))

    def effects(self, codes: Codes) -> tuple[Floats, NDArray[np.int64]]:
        """A basis of each knob's own effect, and the knob of every column.

        Cosines of falling weight for ordered knobs (a smooth curve), one column per category for others; a row's squared
        norm is about 1 per knob, and 0 where it is inactive.
        """
        unit = self.unit(codes)
        columns, groups = [], []
        for index in range(len(self.names)):
            active = (codes[:, index] >= 0)[:, None]
            if self.ordered[index]:
                waves = np.arange(1, min(MAX_COSINES, int(self.sizes[index]) - 1) + 1)
                weights = 1.0 / (1.0 + (waves / 1.5) ** 2) ** 2
                basis = np.cos(np.pi * waves * unit[:, index : index + 1]) * np.sqrt(2 * weights / weights.sum())
            else:
                hot = codes[:, index : index + 1] == np.arange(self.sizes[index])
                basis = (hot - 1.0 / self.sizes[index]) * np.sqrt(self.sizes[index] / max(1, self.sizes[index] - 1))
            columns.append(basis * active)
            groups.append(np.full(basis.shape[1], index))
        if not columns:
            return np.zeros((len(codes), 0)), np.zeros(0, dtype=np.int64)
        return np.concatenate(columns, axis=1), np.concatenate(groups)


@dataclass(frozen=True, kw_only=True)
class KnobColumn:
    """A number for each value of a knob: listed for a few values, worked out from the positions for many.

    Attributes:
        listed: One number per value; empty where there are too many.
        first: Else the first value,
        step: from each value to the next,
        last: and the position of the last.
        grain: How round the values are, rather than where they are.
        least: For those: the smallest and the largest power of two that a value is a multiple of.
        most: See `least`.
    """

    listed: Floats
    first: float = 0.0
    step: float = 0.0
    last: int = 0
    grain: bool = False
    least: float = 0.0
    most: float = 0.0

    def at(self, positions: Codes) -> Floats:
        if len(self.listed):
            return self.listed[positions]
        if self.grain:
            whole = int(self.first) + int(self.step) * positions
            powers = np.log2(np.minimum(whole & -whole, 2**MAX_GRAIN).astype(np.float64))
            return np.asarray((powers - self.least) / (self.most - self.least))
        ranks = positions / self.last
        if self.first <= 0.0 or self.first + self.step * self.last < 8 * self.first:
            return np.asarray(ranks)
        values = self.first + self.step * positions
        return np.asarray(0.5 * (ranks + np.log(values / self.first) / np.log1p(self.step * self.last / self.first)))


def _is_long(knob: Knob) -> bool:
    """Whether its values are too many to be listed."""
    return isinstance(knob.values, (range, Steps)) and len(knob.values) > MAX_LISTED_VALUES


def _places(knob: Knob) -> KnobColumn:
    """Where the values of a knob are on [0, 1]: by rank; halfway to the logarithm where they span three octaves.

    Half and half predicts measured tables better than either alone: ranks follow what the author thought worth listing, logarithms
    what machines do with sizes.
    """
    count = len(knob.values)
    if _is_long(knob):
        first, second = (float(value) for value in knob.values[:2] if isinstance(value, (int, float)))
        return KnobColumn(listed=np.zeros(0), first=first, step=second - first, last=count - 1)
    ranks = np.arange(count) / max(count - 1, 1)
    if not knob.ordered or count < 3:
        return KnobColumn(listed=ranks)
    values = np.array([float(value) for value in knob.values if isinstance(value, (int, float))])
    if len(values) < count or values[0] <= 0 or values[-1] < 8 * values[0]:
        return KnobColumn(listed=ranks)
    logs = np.log(values)
    return KnobColumn(listed=0.5 * (ranks + (logs - logs[0]) / (logs[-1] - logs[0])))


def _grain(knob: Knob) -> KnobColumn | None:
    """How round each value is, on [0, 1]: the power of two it is a multiple of. None where that says no more than its size does.

    Machines move and count in powers of two, so 128 is often more like 64 and 256 than like 112 and 144.
    """
    # Powers of evenly spaced numbers come again after as many numbers as the highest power that counts.
    some = knob.values[: 2**MAX_GRAIN] if _is_long(knob) else knob.values
    values = [value for value in some if isinstance(value, int) and not isinstance(value, bool) and value > 0]
    if len(values) < len(some) or len(values) < 4 or all(value & (value - 1) == 0 for value in values):
        return None
    powers = np.array([min((value & -value).bit_length() - 1, MAX_GRAIN) for value in values], dtype=np.float64)
    low, high = float(powers.min()), float(powers.max())
    if high - low < 2:
        return None
    if _is_long(knob):
        return KnobColumn(listed=np.zeros(0), first=values[0], step=values[1] - values[0], grain=True, least=low, most=high)
    return KnobColumn(listed=(powers - low) / (high - low))
