"""The process of one tracker, `python -m autoscout.report.tracker_process`: reads a study from its store and shows what is new.

The first line of standard input is an order as JSON. Each further line says that something is new; `end`, that the study has ended. Where
standard input ends without that, whoever ran the study is gone. Each answer is a line of JSON on standard output; what packages print goes
to standard error.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

from autoscout.core import plugins
from autoscout.core.clock import RealClock
from autoscout.core.errors import AutoScoutError, Fault, StoreError
from autoscout.core.protocols import Store, StudyRecord
from autoscout.core.secrecy import hide_secrets
from autoscout.core.state import State, state_of
from autoscout.core.tracker import Tracker
from autoscout.core.trial import Trial
from autoscout.report.tracked import tracked_result, tracked_study, tracked_trials
from autoscout.study.plugin_options import build_options
from autoscout.study.stores import open_store

END = "end"
"""The line that says that the study has ended, and its report is written."""
RETRY_S = 20.0  # after trouble nothing is tried again for so long, unless the study ends
LAST_S = 30  # that are left where whoever ran the study is gone
REASON_CHARS = 300
NICE = 10


class Sender:
    """Shows one study in one tracker; after trouble it continues where it was.

    Args:
        tracker: Where to show it.
        store: Where it is kept.
        study: Its name.
        folder: Its result folder.
    """

    def __init__(self, tracker: Tracker, store: Store, study: str, folder: Path) -> None:
        self._tracker, self._store, self._study, self._folder = tracker, store, study, folder
        self._trials: list[Trial] = []
        self._batch = -1
        self.place = ""
        self.sent: set[int] = set()

    @property
    def count(self) -> int:
        """How many trials there are to show."""
        return len(self._trials)

    def show_new(self) -> StudyRecord:
        """Show the trials that are not there yet.

        Raises:
            StoreError: there is no such study.
        """
        record = next((record for record in self._store.studies() if record.name == self._study), None)
        if record is None:
            raise StoreError(Fault(where=str(self._folder), rule=f"there is no study {self._study!r} in its store", fix="Run it first"))
        for batch in self._store.batches(self._study, self._batch):
            self._trials += batch
            self._batch = batch[-1].batch
        if not self.place:
            self.place = self._tracker.begin(tracked_study(record))
            self.sent |= set(self._tracker.sent())
        for trial in tracked_trials(record, self._trials):
            if trial.number not in self.sent:
                self._tracker.add(trial)
                self.sent.add(trial.number)
        return record

    def end(self) -> None:
        """Show the rest, and what came of the study."""
        record = self.show_new()
        pulse = self._store.pulses().get(self._study)
        state = state_of(self._store.actions(self._study), pulse, RealClock().now_s()) if pulse else State.IDLE
        self._tracker.end(tracked_result(record, self._trials, state, self._folder))


def serve(order: dict[str, Any], lines: queue.SimpleQueue[str | None], answer: Callable[[dict[str, Any]], None]) -> int:
    """Show a study until it ends; the exit code says whether all of it was shown."""
    sender: Sender | None = None
    is_late = has_ended = False
    with ExitStack() as stack:
        while not has_ended:
            with suppress(queue.Empty):
                line = lines.get(timeout=RETRY_S if is_late else None)
                while line not in (END, None) and not (is_late or lines.empty()):
                    line = lines.get()
                has_ended = line in (END, None)
                if is_late and not has_ended:
                    continue  # only the time counts
            try:
                sender = sender or _begin(order, stack)
                if has_ended:
                    sender.end()
                else:
                    sender.show_new()
                is_late = False
            except Exception as error:  # of packages and networks, which raise anything
                is_late = True
                answer({"trouble": _reason(error)})
            if sender:
                answer({"place": sender.place, "sent": len(sender.sent), "of": sender.count})
    answer({"done": not is_late})
    return int(is_late)


def main() -> int:
    """Serve the study of the order on standard input."""
    with suppress(OSError):
        os.nice(NICE)  # what is measured meanwhile comes first
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    order = json.loads(sys.stdin.readline())
    threading.Thread(target=_read, args=(lines,), daemon=True).start()

    def answer(data: dict[str, Any]) -> None:
        with suppress(BrokenPipeError):
            answers.write(json.dumps(data) + "\n")

    code = serve(order, lines, answer)
    sys.stderr.flush()
    os._exit(code)  # packages that wait for their threads at the end must not keep anybody waiting


def _read(lines: queue.SimpleQueue[str | None]) -> None:
    for line in sys.stdin:
        lines.put(line.strip())
        if line.strip() == END:
            return
    signal.alarm(LAST_S)
    lines.put(None)


def _begin(order: dict[str, Any], stack: ExitStack) -> Sender:
    store = stack.enter_context(closing(open_store(order["store"], create=False)))
    kind = plugins.get("tracker", order["tracker"])
    options = build_options(kind, order["options"], f"track ({order['tracker']})")
    tracker = stack.enter_context(closing(kind() if options is None else kind(options)))
    return Sender(tracker, store, order["study"], Path(order["folder"]))


def _reason(error: Exception) -> str:
    text = "; ".join(map(str, error.faults)) if isinstance(error, AutoScoutError) else f"{type(error).__name__}: {error}"
    return hide_secrets(" ".join(text.split()))[:REASON_CHARS]


__all__ = ["END", "Sender", "serve"]

if __name__ == "__main__":
    sys.exit(main())
