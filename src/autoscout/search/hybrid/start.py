"""Where a search begins."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from autoscout.core.config import Config
from autoscout.core.seeds import stream
from autoscout.core.trial import EXPENSIVE_S
from autoscout.search.hybrid import tuning
from autoscout.search.hybrid.state import SearchState
from autoscout.space.encode import Rows


def starting_point(state: SearchState) -> Config | None:
    """The default; then what was best on similar tasks; then the farthest from all that is known.

    Where the default works and trials are expensive, the farthest that change few of its knobs: engines have good defaults, and far
    from them most settings only cost. With a simulator only the default: it knows better than chance where to begin.
    """
    if state.step >= state.options.start:
        return None
    for wish in (state.space.default(), *state.remembered):
        config = state.space.project(wish, state.given)
        if config not in state.taken and state.pool.holds(config):
            return config
    if state.priors[0] is not None:
        return None
    rng = stream(state.seed, "hybrid", "start", state.step)
    home = state.space.project(state.space.default(), state.given)
    default = next((answer for answer in state.answers if answer.config == home), None)
    is_expensive = default is not None and not default.failed and default.cost_s >= EXPENSIVE_S
    configs, rows = _near(state, home, rng) if is_expensive else _some(state, state.pool.free(state.taken), rng)
    if not configs:
        return None
    points = state.encoder.rows([*(answer.config for answer in state.answers), *state.waiting]).plain
    distances = ((rows.plain[:, None, :] - points[None, :, :]) ** 2).sum(2).min(1) if len(points) else np.zeros(len(configs))
    return configs[int(np.argmax(distances))]


def _some(state: SearchState, free: NDArray[np.int64], rng: np.random.Generator) -> tuple[list[Config], Rows]:
    """A random part of some rows of the pool."""
    drawn = rng.choice(free, size=min(len(free), tuning.RANDOM_CANDIDATES), replace=False)
    return [state.pool.configs[row] for row in drawn], state.pool.rows.take(drawn)


def _near(state: SearchState, home: Config, rng: np.random.Generator) -> tuple[list[Config], Rows]:
    """Some candidates that change few knobs of the default; where a list has none, those that change fewest."""
    if state.pool.whole:
        free = state.pool.free(state.taken)
        changes = (state.pool.rows.take(free).codes != state.encoder.codes(home)).sum(1)
        return _some(state, free[changes <= max(tuning.FIRST_CHANGES, int(changes.min(initial=len(state.space.knobs))))], rng)
    nearby = [home]
    for _ in range(tuning.FIRST_CHANGES):
        left = rng.choice(len(nearby), size=min(len(nearby), tuning.BEST_CONFIGS), replace=False)
        nearby += [config for row in left for config in state.pool.around(nearby[row])[0]]
    configs = [config for config in dict.fromkeys(nearby) if config not in state.taken]
    return configs, state.encoder.rows(configs)
