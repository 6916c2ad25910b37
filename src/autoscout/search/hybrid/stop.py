"""When a search ends by itself."""

from __future__ import annotations

from autoscout.search.hybrid import tuning
from autoscout.search.hybrid.failures import weighed
from autoscout.search.hybrid.state import SearchState


def is_finished(state: SearchState) -> bool:
    """Whether no candidate is expected to gain `stop_gain`, or all that is left is likely to fail and expected to gain next to nothing."""
    model, options = state.model, state.options
    if len(model.targets) < 2 or state.waiting:
        return False
    if state.gain < options.stop_gain:
        return True
    if not options.stop_failing or state.step < 3 * tuning.EARLY_TRIALS or state.gain >= tuning.MIN_GAIN or not state.risk.spent:
        return False
    if (state.chance >= tuning.MIN_SUCCESS_CHANCE).any():
        return False
    rest = state.pool.rows.take(state.pool.free(state.taken))
    if (model.chance(rest) >= tuning.MIN_SUCCESS_CHANCE).any():
        return False
    doubts = ((weighed(other, *other.predict(rest), other.chance(rest)) * other.unit).max(initial=0.0) for other in model.others)
    return all(gain < tuning.MIN_GAIN for gain in doubts)
