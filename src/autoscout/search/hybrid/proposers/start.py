"""Where a search begins."""

from __future__ import annotations

import numpy as np

from autoscout.core.config import Config
from autoscout.core.seeds import stream
from autoscout.core.trial import Proposal
from autoscout.search.hybrid import tuning
from autoscout.search.hybrid.candidates import apart
from autoscout.search.hybrid.state import SearchState
from autoscout.space.encode import Rows

STEPS = 12
"""Configurations: how many are left by single moves, at random, to find what changes one knob more."""


def propose(state: SearchState) -> Proposal | None:
    """The default; then what was best on similar tasks; then the farthest from all that is known.

    Where the default works and trials are expensive, the farthest that change few of its knobs: engines have good defaults, and far
    from them most settings only cost. With a simulator only the default: it knows better than chance where to begin.
    """
    if state.step >= state.options.start:
        return None
    for wish in (state.space.default(), *state.remembered):
        config = state.space.project(wish, state.given)
        if config not in state.taken and state.pool.holds(config):
            return state.proposal(config, "start")
    if state.prior is not None:
        return None
    rng = stream(state.seed, "hybrid", "start", state.step)
    configs, rows = _near(state, rng) if state.is_careful else _anywhere(state, rng)
    if not configs:
        return None
    points = state.encoder.rows([*(answer.config for answer in state.answers), *state.waiting]).plain
    distances = ((rows.plain[:, None, :] - points[None, :, :]) ** 2).sum(2).min(1) if len(points) else np.zeros(len(configs))
    return state.proposal(configs[int(np.argmax(distances))], "start")


def _anywhere(state: SearchState, rng: np.random.Generator) -> tuple[list[Config], Rows]:
    """Some candidates."""
    free = state.pool.free(state.taken)
    drawn = rng.choice(free, size=min(len(free), tuning.RANDOM_CANDIDATES), replace=False)
    return [state.pool.configs[row] for row in drawn], state.pool.rows.take(drawn)


def _near(state: SearchState, rng: np.random.Generator) -> tuple[list[Config], Rows]:
    """Some candidates that change few knobs of the default; where a list has none, those that change fewest."""
    free = state.pool.free(state.taken)
    if state.pool.whole:
        changes = apart(state.encoder, state.pool.rows.take(free), [state.home])
        free = free[changes <= max(tuning.FIRST_CHANGES, int(changes.min(initial=len(state.space.knobs))))]
        drawn = rng.choice(free, size=min(len(free), tuning.RANDOM_CANDIDATES), replace=False)
        return [state.pool.configs[row] for row in drawn], state.pool.rows.take(drawn)
    nearby = [state.home]
    for _ in range(tuning.FIRST_CHANGES):
        some = rng.choice(len(nearby), size=min(len(nearby), STEPS), replace=False)
        nearby += [config for row in some for config in state.pool.around(nearby[row])[0]]
    configs = [config for config in dict.fromkeys(nearby) if config not in state.taken]
    return configs, state.encoder.rows(configs)
