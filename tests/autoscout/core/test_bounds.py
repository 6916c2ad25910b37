from __future__ import annotations

from statistics import fmean

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from autoscout.core.to_beat import latency_at_least, rate_at_most

LATENCIES = st.lists(st.floats(0.0, 1e4), min_size=1, max_size=40)


@given(LATENCIES, st.integers(0, 40), st.sampled_from([50, 95, 99]))
def test_no_latency_falls_below_its_bound(latencies: list[float], done: int, percent: int) -> None:
    whole = float(np.percentile(latencies, percent))
    seen = latencies[:done]
    assert latency_at_least(seen, len(latencies), lambda values: float(np.percentile(values, percent))) <= whole * (1 + 1e-9)
    assert latency_at_least(seen, len(latencies), fmean) <= float(np.mean(latencies)) * (1 + 1e-9)


def test_known_bounds() -> None:
    assert latency_at_least([3.0, 2.0], 2, max) == 3.0
    assert latency_at_least([4.0], 4, fmean) == 1.0
    assert rate_at_most(100.0, 4.0) == 25.0
