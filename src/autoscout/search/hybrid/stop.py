"""When a search ends by itself."""

from __future__ import annotations

from autoscout.search.hybrid import tuning
from autoscout.search.hybrid.failures import weighed
from autoscout.search.hybrid.state import State


def finished(state: State) -> bool:
    """Whether no candidate is expected to gain `stop_gain`, or all that is left is likely to fail and expected to gain next to nothing."""
    model, options = state.model, state.options
    if len(model.targets) < 2 or state.waiting:
        return False
    if state.gain < options.stop_gain:
        return True
    if not options.stop_failing or state.step < 3 * tuning.EARLY or state.gain >= tuning.GAIN or not state.risk.spent:
        return False
    if (state.chance >= tuning.SAFE).any():
        return False
    left = state.pool.rows.take(state.pool.free(state.taken))
    if (model.chance(left) >= tuning.SAFE).any():
        return False
    doubts = ((weighed(other, *other.predict(left), other.chance(left)) * other.unit).max(initial=0.0) for other in model.others)
    return all(gain < tuning.GAIN for gain in doubts)
