"""What to try when the model expects nothing more."""

from __future__ import annotations

import numpy as np

from autoscout.core.trial import Proposal
from autoscout.search.hybrid import tuning
from autoscout.search.hybrid.candidates import apart
from autoscout.search.hybrid.state import SearchState


def propose(state: SearchState) -> Proposal | None:
    """Of the candidates one knob away from a good configuration, the one that the model knows least about.

    The best row of some tables lies among good ones and is far better than all of them. No smooth model expects it, and one that
    does not would never propose it.
    """
    if len(state.model.targets) < 2 or state.gain >= tuning.MIN_GAIN:
        return None
    near = np.flatnonzero((apart(state.encoder, state.rows, state.good) == 1) & (state.chance >= tuning.MIN_SUCCESS_CHANCE))
    if not len(near):
        return None
    unknown = state.prediction[1].reshape(len(state.rows), -1).sum(axis=1)  # one column per goal
    return state.proposal(state.weighed[0][int(near[np.argmax(unknown[near])])], "exhausted")
