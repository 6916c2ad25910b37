"""The best that a metric can still reach while a load is only partly done: certain, whatever the rest brings."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray


def rate_at_most(total: float, elapsed_s: float) -> float:
    """The highest rate (tokens or requests per second) of a load that has run for `elapsed_s`, if all the rest came at once.

    Args:
        total: Tokens or requests of the whole load.
        elapsed_s: Since it began, above zero.
    """
    return total / elapsed_s


def latency_at_least(seen: Sequence[float], total: int, statistic: Callable[[NDArray[np.float64]], float]) -> float:
    """The lowest a statistic of latencies can become, if all the rest took no time.

    Args:
        seen: Latencies of the requests that are done, and the ages of those under way.
        total: Requests of the whole load.
        statistic: Of all latencies, such as a mean or a percentile; must not fall when a latency rises.
    """
    rest = np.zeros(max(0, total - len(seen)))
    return float(statistic(np.concatenate([np.asarray(seen, dtype=np.float64), rest])))


__all__ = ["latency_at_least", "rate_at_most"]
