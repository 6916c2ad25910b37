"""Tells a person who waits what for: after a while, and then now and then."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from autoscout.core.log import NOTICES, logger

FIRST_S = 10.0
REMIND_S = 60.0

notices = logger(NOTICES)


class Patience:
    """Repeats each reason for waiting at most once in a while, however many launches of an executor wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._notices_s: dict[str, float] = {}

    def tell(self, waited_s: float, kind: str, say: Callable[[], str]) -> None:
        """Say what is waited for; `say` is asked only when something is to be said.

        Args:
            waited_s: How long already.
            kind: What tells one reason from another.
            say: The sentence.
        """
        now_s = time.monotonic()
        with self._lock:
            if waited_s < FIRST_S or now_s < self._notices_s.get(kind, -REMIND_S) + REMIND_S:
                return
            self._notices_s[kind] = now_s
        notices.warning("%s", say())
