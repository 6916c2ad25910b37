"""One clock for everything that waits or dates: the only place that may ask the system for the time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Clock(Protocol):
    """Where time comes from.

    Studies, executors and controllers take their time from a clock they are given, so that a ten-hour study can be
    replayed in seconds by the same program.
    """

    def now_s(self) -> float:
        """Seconds since the epoch, for dating records; never for measuring spans."""

    def span_s(self) -> float:
        """Seconds on a clock that never jumps, for measuring spans."""

    def sleep(self, duration_s: float) -> None:
        """Return once `duration_s` have passed on this clock."""


class RealClock:
    """The system's clock."""

    def now_s(self) -> float:
        return time.time()

    def span_s(self) -> float:
        return time.monotonic()

    def sleep(self, duration_s: float) -> None:
        time.sleep(max(0.0, duration_s))


class VirtualClock:
    """A clock that moves only when somebody sleeps on it."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s
        self._lock = threading.Lock()

    def now_s(self) -> float:
        return self._now_s

    def span_s(self) -> float:
        return self._now_s

    def sleep(self, duration_s: float) -> None:
        with self._lock:
            self._now_s += max(0.0, duration_s)


class FastClock:
    """A clock that runs a number of times as fast as the system's, from a moment on."""

    def __init__(self, speed: float, start_s: float = 0.0) -> None:
        self._speed, self._start_s, self._began_s = speed, start_s, time.monotonic()

    def now_s(self) -> float:
        return self._start_s + self.span_s()

    def span_s(self) -> float:
        return (time.monotonic() - self._began_s) * self._speed

    def sleep(self, duration_s: float) -> None:
        time.sleep(max(0.0, duration_s) / self._speed)


def cpu_s() -> float:
    """Seconds of CPU that this process has used, all threads together: what a proposal costs, whoever else uses the machine."""
    return time.process_time()


@contextmanager
def timed(spent: dict[str, float], name: str, clock: Clock | None = None) -> Iterator[None]:
    """Add the seconds inside to those of a part (`autoscout.core.trial.SPENT`)."""
    clock = clock or RealClock()
    begun_s = clock.span_s()
    try:
        yield
    finally:
        spent[name] = spent.get(name, 0.0) + clock.span_s() - begun_s
