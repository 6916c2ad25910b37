"""Which configurations are weighed against each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from autoscout.core.config import Config
from autoscout.core.seeds import stream
from autoscout.search._shared.neighbours import spread
from autoscout.space import Space
from autoscout.space.encode import Encoder, Rows, gates

LISTED = 12_000
"""Spaces up to this size are listed whole; larger ones are sampled, and explored around good configurations."""
DRAWN = 3_000
WEIGHED = 450
"""Random candidates at every step."""
WHOLE = 800
"""Up to this many, all are weighed."""
CLOSE = 60
"""Candidates two knobs away from each good configuration at every step."""


class Candidates:
    """The candidates under one `given`: everything in a small space, a fixed random sample in a large one.

    Attributes:
        configs: The candidates.
        rows: The same as rows.
        whole: Whether they are all there is.
    """

    def __init__(self, space: Space, encoder: Encoder, seed: int, given: Config, shape: Callable[[Config], Config] | None = None) -> None:
        self._space = space
        self._encoder = encoder
        self._seed = seed
        self._given = given
        self._shape = shape
        self._neighbours: dict[Config, tuple[list[Config], Rows]] = {}
        found: list[Config] = []
        self.whole = space.count(limit=LISTED, given=given).value <= 4 * LISTED
        if self.whole:
            found = list(islice(space.enumerate(given), LISTED + 1))
            self.whole = len(found) <= LISTED
        if not self.whole:
            rng = stream(seed, "hybrid", "candidates", given.canonical)
            found = drawn(space, rng, given, DRAWN)
        self.configs: Sequence[Config] = list(dict.fromkeys(map(shape, found) if shape is not None else found))
        self.rows = encoder.rows(self.configs)
        self._index = {config: row for row, config in enumerate(self.configs)}

    def holds(self, config: Config) -> bool:
        """Whether it may be proposed here."""
        return config in self._index if self.whole else config.extends(self._given)

    def around(self, config: Config) -> tuple[list[Config], Rows]:
        """The neighbours of a configuration that extend `given`."""
        if config not in self._neighbours:
            near = self._space.neighbours(config)
            shaped = dict.fromkeys(map(self._shape, near) if self._shape is not None else near)
            found = [other for other in shaped if other.extends(self._given) and other != config]
            self._neighbours[config] = (found, self._encoder.rows(found))
        return self._neighbours[config]

    def free(self, taken: Iterable[Config]) -> NDArray[np.int64]:
        """Rows of the candidates that are not taken."""
        mask = np.ones(len(self.configs), dtype=np.bool_)
        mask[[row for config in taken if (row := self._index.get(config)) is not None]] = False
        return np.flatnonzero(mask)

    def weigh(self, taken: set[Config], good: Sequence[Config], step: int) -> tuple[list[Config], Rows]:
        """What is weighed at a step: all that is free where that is little; else a random part, and what is near good configurations.

        Args:
            taken: Not these.
            good: The best known configurations, the incumbent first.
            step: Names the draw.
        """
        rows = self.free(taken)
        if self.whole and len(rows) <= WHOLE:
            return [self.configs[row] for row in rows], self.rows.take(rows)
        rng = stream(self._seed, "hybrid", "weighed", step)
        drawn = rng.choice(rows, size=min(len(rows), WEIGHED), replace=False) if len(rows) else rows
        if self.whole:
            drawn = np.unique(np.concatenate([drawn, *(self._close(rows, config, rng) for config in good)]))
            return [self.configs[row] for row in drawn], self.rows.take(drawn)
        configs = [self.configs[row] for row in drawn]
        parts, held = [self.rows.take(drawn)], {*configs, *taken}
        for config in good:
            if self._space.check(config):
                continue
            near, near_rows = self.around(config)
            keep = [index for index, other in enumerate(near) if other not in held]
            held.update(near[index] for index in keep)
            configs += [near[index] for index in keep]
            parts.append(near_rows.take(keep))
        return configs, Rows.join(parts)

    def _close(self, rows: NDArray[np.int64], config: Config, rng: np.random.Generator) -> NDArray[np.int64]:
        """All rows one knob away from a configuration, whatever the size of the step, and some two knobs away."""
        codes = self._encoder.codes(config)
        apart = (self.rows.codes[rows] != codes).sum(1)
        two = rows[apart == 2]
        if len(two) > CLOSE:
            two = rng.choice(two, size=CLOSE, replace=False)
        return np.concatenate([rows[apart == 1], two])

    def rest(self, taken: set[Config], step: int) -> Config | None:
        """Any configuration that is not taken, when a sample is used up; None when there is none in the whole space."""
        shape = self._shape if self._shape is not None else lambda config: config
        rng = stream(self._seed, "hybrid", "rest", step)
        for _ in range(200):
            config = self._space.sample(rng, self._given)
            if config is not None and (found := shape(config)) not in taken:
                return found
        return next((found for config in self._space.enumerate(self._given) if (found := shape(config)) not in taken), None)


def drawn(space: Space, rng: np.random.Generator, given: Config, count: int) -> list[Config]:
    """Random configurations, `count` at most and none twice, from all branches of the space alike."""
    first = gates(space)
    return list(dict.fromkeys(config for _ in range(count) if (config := spread(space, rng, given, first)) is not None))
