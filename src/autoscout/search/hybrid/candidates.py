"""Which configurations are compared with each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from autoscout.core.config import Config
from autoscout.core.seeds import stream
from autoscout.search.hybrid import tuning
from autoscout.space import Space
from autoscout.space.encode import Encoder, Rows, gates
from autoscout.space.neighbours import fresh, spread


class Candidates:
    """The candidates under one `given`: everything in a small space, a fixed random sample of `draws` in a large one.

    Attributes:
        configs: The candidates.
        rows: The same as rows.
        whole: Whether they are all there is.
    """

    def __init__(self, space: Space, encoder: Encoder, seed: int, given: Config, draws: int = tuning.MAX_LISTED // 4) -> None:
        self._space = space
        self._encoder = encoder
        self._seed = seed
        self._given = given
        self._neighbours: dict[Config, tuple[list[Config], Rows]] = {}
        configs: list[Config] = []
        self.whole = space.count(limit=tuning.MAX_LISTED, given=given).value <= 4 * tuning.MAX_LISTED  # it may be an estimate
        if self.whole:
            configs = list(islice(space.enumerate(given), tuning.MAX_LISTED + 1))
            self.whole = len(configs) <= tuning.MAX_LISTED
        if not self.whole:
            configs = drawn(space, stream(seed, "hybrid", "candidates", given.canonical), given, draws)
        self.configs: Sequence[Config] = configs
        self.rows = encoder.rows(self.configs)
        self._index = {config: row for row, config in enumerate(self.configs)}

    def holds(self, config: Config) -> bool:
        """Whether it may be proposed here."""
        return config in self._index if self.whole else config.extends(self._given)

    def around(self, config: Config) -> tuple[list[Config], Rows]:
        """The neighbours of a configuration that extend `given`."""
        if config not in self._neighbours:
            neighbours = [other for other in self._space.neighbours(config) if other.extends(self._given)]
            self._neighbours[config] = (neighbours, self._encoder.rows(neighbours))
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
        if self.whole and len(rows) <= tuning.RANDOM_CANDIDATES:
            return [self.configs[row] for row in rows], self.rows.take(rows)
        rng = stream(self._seed, "hybrid", "weighed", step)
        some = rng.choice(rows, size=min(len(rows), tuning.RANDOM_CANDIDATES), replace=False)
        if self.whole:
            some = np.unique(np.concatenate([some, *(self._close(rows, config, rng) for config in good)]))
            return [self.configs[row] for row in some], self.rows.take(some)
        configs = [self.configs[row] for row in some]
        parts, held = [self.rows.take(some)], {*configs, *taken}
        for config in good:
            near, near_rows = self.around(config)
            keep = [index for index, other in enumerate(near) if other not in held]
            held.update(near[index] for index in keep)
            configs += [near[index] for index in keep]
            parts.append(near_rows.take(keep))
        if not configs and (last := fresh(self._space, rng, self._given, taken)) is not None:  # the sample is used up
            return [last], self._encoder.rows([last])
        return configs, Rows.join(parts)

    def _close(self, rows: NDArray[np.int64], config: Config, rng: np.random.Generator) -> NDArray[np.int64]:
        """All rows one knob away from a configuration, whatever the size of the step, and some two knobs away."""
        apart = (self.rows.codes[rows] != self._encoder.codes(config)).sum(1)
        two = rows[apart == 2]
        if len(two) > (some := tuning.RANDOM_CANDIDATES // tuning.BEST_CONFIGS):
            two = rng.choice(two, size=some, replace=False)
        return np.concatenate([rows[apart == 1], two])


def drawn(space: Space, rng: np.random.Generator, given: Config, count: int) -> list[Config]:
    """Random configurations, none twice, from all branches of the space alike."""
    first = gates(space)
    draws = (spread(space, rng, given, first) for _ in range(count))
    return list(dict.fromkeys(config for config in draws if config is not None))
