"""What the model expects most of."""

from __future__ import annotations

import numpy as np

from autoscout.core.trial import Proposal
from autoscout.search.hybrid.state import SearchState


def propose(state: SearchState) -> Proposal | None:
    """The candidate that is worth most; in a sampled space, uphill from it by single moves, because a sample seldom holds the peak."""
    best = int(np.argmax(state.values))
    config, value = state.weighed[0][best], float(state.values[best])
    while not state.pool.whole:
        near, rows = state.pool.around(config)
        free = [index for index, other in enumerate(near) if other not in state.taken]
        if not free:
            break
        values = state.worth(rows.take(free))
        best = int(np.argmax(values))
        if values[best] <= value:
            break
        config, value = near[free[best]], float(values[best])
    return state.proposal(config, "acquisition")
