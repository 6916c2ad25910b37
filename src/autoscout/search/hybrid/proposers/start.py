"""Where a search begins."""

from __future__ import annotations

import numpy as np

from autoscout.core.seeds import stream
from autoscout.core.trial import Proposal
from autoscout.search.hybrid import tuning
from autoscout.search.hybrid.state import State


def propose(state: State) -> Proposal | None:
    """The default; then what was best on similar tasks; then the farthest from all that is known.

    With a simulator only the default: it knows better than chance where to begin.
    """
    if state.step >= state.options.start:
        return None
    for wish in (state.space.default(), *state.remembered):
        config = state.space.project(wish, state.given)
        if config not in state.taken and state.pool.holds(config):
            return state.proposal(config, "start")
    free = state.pool.free(state.taken)
    if state.prior is not None or not len(free):
        return None
    rng = stream(state.seed, "hybrid", "start", state.step)
    drawn = rng.choice(free, size=min(len(free), tuning.WEIGHED), replace=False)
    known = state.encoder.rows([*(answer.config for answer in state.answers), *state.waiting]).plain
    here = state.pool.rows.plain[drawn]
    distances = ((here[:, None, :] - known[None, :, :]) ** 2).sum(2).min(1) if len(known) else np.zeros(len(here))
    return state.proposal(state.pool.configs[int(drawn[np.argmax(distances)])], "start")
