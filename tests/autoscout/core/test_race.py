from __future__ import annotations

import pytest

from autoscout.core.clock import VirtualClock, timed
from autoscout.core.task import Direction
from autoscout.core.to_beat import Race, ToBeat


def test_a_race_is_lost_by_short_repeats_or_within_one() -> None:
    goal = ToBeat(metric="output_throughput", direction=Direction.MAXIMIZE, value=100.0, spread=0.02)
    race = Race(goal)
    assert not race.lost([], 3)
    assert not race.lost([{"output_throughput": 96.0, "p95_ttft_ms": 1.0}], 3), "within the noise of one repeat"
    assert not race.over([])({"output_throughput": 5000.0})
    assert not race.lost([{"output_throughput": 50.0}] * 3, 3), "measured to its end"
    assert race.over([{"output_throughput": 80.0}])({"output_throughput": 81.0})
    assert race.why == "output_throughput is at most 83.92, and 100 is to beat"
    assert race.lost([{"output_throughput": 500.0}], 3), "it stays lost"
    assert not Race(None).lost([{"output_throughput": 1.0}], 3)


def fails(clock: VirtualClock) -> None:
    clock.sleep(3.0)
    raise OSError("x")


def test_seconds_count_also_where_something_fails() -> None:
    clock, spent = VirtualClock(), {}
    with timed(spent, "start_s", clock):
        clock.sleep(2.0)
    with pytest.raises(OSError, match="x"), timed(spent, "start_s", clock):
        fails(clock)
    assert spent == {"start_s": 5.0}
