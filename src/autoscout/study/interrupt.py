"""Ends a study early: its loop is told to stop, and what is under way is cancelled when asked."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from autoscout.core.protocols import Evaluator

CANCEL_S = 0.5  # between two attempts to end what is under way

INTERRUPTED = "autoscout: interrupted; the study ends with what was measured. Ctrl-C again gives up its result, too."


class Ending:
    """A way to end a study from a signal handler, which must not wait: it may have interrupted code that holds locks.

    Attributes:
        stopping: The event that ends the loop of the study.
    """

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._over = threading.Event()
        self._evaluators: list[Evaluator] = []
        self._helpers: list[threading.Thread] = []

    def attach(self, evaluator: Evaluator) -> threading.Event:
        """For `autoscout.study.assemble.run`."""
        self._evaluators.append(evaluator)
        return self.stopping

    def stop(self, tell: Callable[[], None] | None = None, *, cancel: bool) -> None:
        """Start no more trials; returns at once.

        Args:
            tell: Called on another thread.
            cancel: End the trials under way, too.
        """
        self.stopping.set()
        for helper in ([tell] if tell else []) + ([self._cancel] if cancel else []):
            self._helpers.append(threading.Thread(target=helper, daemon=True))
            self._helpers[-1].start()

    def close(self) -> None:
        """To be called when the study has ended."""
        self._over.set()
        for helper in self._helpers:
            helper.join()

    def _cancel(self) -> None:
        while not self._over.is_set():  # more than once: a trial may have been about to start
            for evaluator in self._evaluators:
                evaluator.cancel()
            self._over.wait(CANCEL_S)


@contextmanager
def ends_on_interrupt() -> Iterator[Ending]:
    """Ctrl-C, or the stop button of a notebook, ends the study instead of raising `KeyboardInterrupt`; a second time it raises.

    Only where Ctrl-C would raise: on another thread, or in a program with a handler of its own, nothing changes.
    """
    ending, asked = Ending(), threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        ending.stop(lambda: print(INTERRUPTED, file=sys.stderr), cancel=True)

    usual = signal.default_int_handler
    can_catch = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is usual
    if can_catch:
        signal.signal(signal.SIGINT, handle)
    try:
        yield ending
    finally:
        try:
            ending.close()
        finally:
            if can_catch:
                signal.signal(signal.SIGINT, usual)


__all__ = ["Ending", "ends_on_interrupt"]
