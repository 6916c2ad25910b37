"""Which configurations are compared with each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

import numpy as np

from autoscout.core.config import Config
from autoscout.core.seeds import stream
from autoscout.search.hybrid import tuning
from autoscout.space import Space
from autoscout.space.encode import Encoder, Floats, Rows, gates
from autoscout.space.neighbours import fresh, spread


class Candidates:
    """The candidates under one `given`: everything in a small space, a fixed random sample of `draws` in a large one.

    Attributes:
        given: What every candidate extends.
        configs: The candidates.
        rows: The same as rows.
        whole: Whether they are all there is.
    """

    def __init__(self, space: Space, encoder: Encoder, seed: int, given: Config, draws: int = tuning.MAX_LISTED // 4) -> None:
        self._space = space
        self._encoder = encoder
        self._seed = seed
        self.given = given
        self._neighbours: dict[Config, tuple[list[Config], Rows]] = {}
        few = space.count(limit=tuning.MAX_LISTED, given=given).value <= 4 * tuning.MAX_LISTED  # it may be an estimate
        configs = list(islice(space.enumerate(given), tuning.MAX_LISTED + 1)) if few else []
        self.whole = few and len(configs) <= tuning.MAX_LISTED
        if not self.whole:
            rng, first = stream(seed, "hybrid", "candidates", given.canonical), gates(space)
            sample = (spread(space, rng, given, first) for _ in range(draws))  # from all branches of the space alike
            configs = list(dict.fromkeys(config for config in sample if config is not None))
        self.configs: Sequence[Config] = configs
        self.rows = encoder.rows(self.configs)
        self._index = {config: row for row, config in enumerate(self.configs)}

    def holds(self, config: Config) -> bool:
        """Whether it may be proposed here."""
        return config in self._index if self.whole else config.extends(self.given)

    def around(self, config: Config) -> tuple[list[Config], Rows]:
        """The neighbours of a configuration that extend `given`."""
        if config not in self._neighbours:
            neighbours = [other for other in self._space.neighbours(config) if other.extends(self.given)]
            self._neighbours[config] = (neighbours, self._encoder.rows(neighbours))
        return self._neighbours[config]

    def weigh(self, taken: set[Config], good: Sequence[Config], step: int) -> tuple[list[Config], Rows]:
        """What is weighed at a step: all that is free where that is little; else a random part, and what is near good configurations.

        Args:
            taken: Not these.
            good: The best known configurations, the incumbent first.
            step: Names the draw.
        """
        free = np.ones(len(self.configs), dtype=np.bool_)
        free[[row for config in taken if (row := self._index.get(config)) is not None]] = False
        rows = np.flatnonzero(free)
        rng = stream(self._seed, "hybrid", "weighed", step)
        if self.whole and len(rows) <= tuning.RANDOM_CANDIDATES:
            good = []
        rows = rng.permutation(rows)[: tuning.RANDOM_CANDIDATES]
        configs, parts = [self.configs[row] for row in rows.tolist()], [self.rows.take(rows)]
        held = {*configs, *taken}
        for config in good:
            near, near_rows = self.around(config)
            keep = [index for index, other in enumerate(near) if other not in held]
            held.update(near[index] for index in keep)
            configs += [near[index] for index in keep]
            parts.append(near_rows.take(keep))
        if not configs and not self.whole and (last := fresh(self._space, rng, self.given, taken)) is not None:  # the sample is used up
            return [last], self._encoder.rows([last])
        return configs, Rows.join(parts)

    def best(self, configs: Sequence[Config], rows: Rows, taken: set[Config], worth: Callable[[Rows], Floats]) -> Config:
        """The one that is worth most; in a sampled space, uphill from it by single moves, because a sample seldom holds the peak."""
        values = worth(rows)
        row = int(np.argmax(values))
        config, value = configs[row], float(values[row])
        while not self.whole:
            near, rows = self.around(config)
            free = [index for index, other in enumerate(near) if other not in taken]
            values = worth(rows.take(free))
            if values.max(initial=value) <= value:
                break
            row = int(np.argmax(values))
            config, value = near[free[row]], float(values[row])
        return config
