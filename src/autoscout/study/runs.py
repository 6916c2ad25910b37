"""Notes in the store who works on a study, and how each run of it ended: those who watch cannot tell a stop from a crash otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from autoscout.core.actions import Action, ActionKind
from autoscout.core.errors import StoreError
from autoscout.core.log import logger
from autoscout.core.protocols import Store
from autoscout.core.state import State, answer_of
from autoscout.study.budget import Stop

ENDS = {Stop.INTERRUPTED: State.INTERRUPTED, Stop.FAILURES: State.FAILED, Stop.REFUSED: State.FAILED}
"""How a study stands that ended so; the others are finished."""

log = logger(__name__)


class NotedRun:
    """One run of a study. A process that is killed leaves it without an answer.

    Args:
        store: Where it is noted; one that keeps no actions notes nothing.
        study: The study's name.
        worker: Who runs it.
    """

    def __init__(self, store: Store, study: str, worker: str) -> None:
        self._store, self._study, self._number = store, study, -1
        if store.takes_actions:
            self._number = store.act(study, Action(kind=ActionKind.RUN, worker=worker)).number

    def end(self, state: State, words: str) -> None:
        """Note how it ended; the first word counts."""
        if self._number < 0:
            return
        try:
            self._store.answer(self._study, self._number, answer_of(state, words))
        except StoreError as error:
            log.warning("how the run of %r ended is not noted: %s", self._study, error)
        self._number = -1

    def stopped(self, stop: Stop | None, words: str = "") -> None:
        """Note that it ended for a reason; None: nobody knows one."""
        self.end(ENDS.get(stop, State.FINISHED) if stop else State.INTERRUPTED, words or (stop.value if stop else "closed"))


@contextmanager
def noted_run(store: Store, study: str, worker: str) -> Iterator[NotedRun]:
    """A run that is also ended by an exception."""
    run = NotedRun(store, study, worker)
    try:
        yield run
    except KeyboardInterrupt:
        run.end(State.INTERRUPTED, "interrupted twice")
        raise
    except BaseException as error:
        run.end(State.FAILED, f"{type(error).__name__}: {error}".partition("\n")[0][:300])
        raise


__all__ = ["NotedRun", "noted_run"]
