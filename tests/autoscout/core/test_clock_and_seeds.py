from __future__ import annotations

import numpy as np

from autoscout.core.clock import RealClock, VirtualClock
from autoscout.core.seeds import number, stream


def test_a_virtual_clock_moves_only_when_slept_on() -> None:
    clock = VirtualClock(start_s=100.0)
    assert clock.now_s() == clock.span_s() == 100.0
    clock.sleep(36_000.0)
    clock.sleep(-5.0)
    assert clock.now_s() == 36_100.0


def test_the_real_clock_does_not_run_backwards() -> None:
    clock = RealClock()
    before = clock.span_s()
    clock.sleep(0.0)
    assert clock.span_s() >= before
    assert clock.now_s() > 1.7e9


def test_streams_are_named_and_repeatable() -> None:
    draw = stream(1, "search", 3).random(4)
    assert np.array_equal(draw, stream(1, "search", 3).random(4))
    assert not np.array_equal(draw, stream(1, "search", 4).random(4))
    assert not np.array_equal(draw, stream(2, "search", 3).random(4))
    assert number(1, "a", "b") != number(1, "a/b")
    assert number(1, 3) != number(1, "3")
    assert number(7, "prompts") == 730632354719759377, "seeds must not change between versions"
