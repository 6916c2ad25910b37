"""Shows a study in trackers while it runs, each by a process of its own: one that is down, slow or hangs costs the study nothing."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

from autoscout.core import plugins
from autoscout.core.clock import Clock, RealClock
from autoscout.core.errors import AutoScoutError, ConfigError, Fault
from autoscout.core.log import NOTICES, logger
from autoscout.core.trial import Proposal, Trial
from autoscout.report.tracker_process import END
from autoscout.study.campaign import PluginEntry
from autoscout.study.folder import Folder
from autoscout.study.plugin_options import build_options

WAIT_S = 20.0
"""Seconds that a study waits for its trackers at its end, all of them together."""
SEND_S = 600.0
"""Seconds that `autoscout track` waits: there is nothing else to do."""
POLL_S = 0.05

notices = logger(NOTICES)


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What a tracker shows of a study.

    Attributes:
        tracker: Its name.
        place: Where people see it: an address, a path or a command; empty where it was not reached.
        sent: How many trials it shows.
        trials: How many there are.
        is_whole: Whether it shows all of the study.
    """

    tracker: str
    place: str
    sent: int
    trials: int
    is_whole: bool


class Tracking:
    """An observer that tells the processes of trackers that something is new. Close it after the report is written.

    Args:
        entries: The trackers with their options.
        folder: The result folder; None: a study without one cannot be tracked.
        store: Where the study is kept.
        study: Its name.
        wait_s: Seconds to wait for all of them at the end.
        clock: Replaced in tests.

    Raises:
        ConfigError: see `check_trackers`.
    """

    def __init__(
        self,
        entries: Sequence[PluginEntry],
        folder: Folder | None,
        store: str,
        study: str,
        *,
        wait_s: float = WAIT_S,
        clock: Clock | None = None,
    ) -> None:
        self._wait_s, self._clock = wait_s, clock or RealClock()
        self._links: list[_Link] = []
        options = check_trackers(entries, folder)
        if folder is not None:
            common = {"store": store, "study": study, "folder": str(folder.path.absolute())}
            self._links = [
                _Link({"tracker": name, "options": values, **common}, folder, f"track-{place}-{name}.log")
                for place, (name, values) in enumerate(options)
            ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def phase(self, name: str) -> None: ...

    def started(self, proposal: Proposal) -> None: ...

    def finished(self, trial: Trial) -> None:  # noqa: ARG002
        for link in self._links:
            link.tell("new")

    def close(self) -> list[Shown]:
        """Show the rest and what came of the study, wait as long as is allowed, and say how it went."""
        links, self._links = self._links, []
        for link in links:
            link.tell(END)
        until_s = self._clock.span_s() + self._wait_s
        return [link.end(until_s, self._clock) for link in links]


def check_trackers(entries: Sequence[PluginEntry], folder: Folder | None) -> list[tuple[str, dict[str, Any]]]:
    """The trackers by name with all their options.

    Raises:
        ConfigError: there is no such tracker, its packages are not installed, its options are wrong, or there is no folder; all at once.
    """
    trackers: list[tuple[str, dict[str, Any]]] = []
    faults: list[Fault] = []
    for entry in entries:
        try:
            kind = plugins.get("tracker", entry.name)
            own = {"folder": str(folder.path.absolute())} if folder and "folder" in plugins.option_names(kind) else {}
            options = {**own, **entry.options}
            build_options(kind, options, f"track ({entry.name})")
            trackers.append((entry.name, options))
        except AutoScoutError as error:
            faults += error.faults
    if entries and folder is None:
        rule, fix = "needs a study that is kept", "Give it a result folder (`folder=` in Python)"
        faults.append(Fault(where="track", value=", ".join(map(str, entries)), rule=rule, fix=fix))
    if faults:
        raise ConfigError(faults)
    return trackers


class _Link:
    """The process of one tracker."""

    def __init__(self, order: dict[str, Any], folder: Folder, log: str) -> None:
        self._name, self._folder = order["tracker"], folder
        self._place, self._sent, self._of = "", 0, 0
        self._said = self._done = False
        folder.path.mkdir(parents=True, exist_ok=True)
        self._log = folder.path / log
        descriptor = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "autoscout.report.tracker_process"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,  # Ctrl-C is for the study
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.tell(json.dumps(order))
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)  # one that hangs reads nothing

    def tell(self, line: str) -> None:
        """Write a line, unless nobody reads."""
        assert self._process.stdin is not None
        with suppress(OSError):
            os.write(self._process.stdin.fileno(), f"{line}\n".encode())

    def end(self, until_s: float, clock: Clock) -> Shown:
        """Wait for it until then, and say how it went."""
        while self._process.poll() is None and clock.span_s() < until_s:
            clock.sleep(POLL_S)
        hangs = self._process.poll() is None
        if hangs:
            self._process.kill()
        self._process.wait()
        self._reader.join(1.0)
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                assert stream is not None
                stream.close()
        if self._done:
            notices.warning("tracked: %s: %s", self._name, self._place)
        elif not self._said:
            why = "did not answer in time" if hangs else f"ended early, see {self._log}"
            self._say(f"{why}, {self._sent} of {self._of} trials are there")
        with suppress(OSError):
            if self._done or not self._log.stat().st_size:
                self._log.unlink()
        return Shown(tracker=self._name, place=self._place, sent=self._sent, trials=self._of, is_whole=self._done)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            self._place = answer.get("place") or self._place
            self._sent, self._of = answer.get("sent", self._sent), answer.get("of", self._of)
            self._done = answer.get("done", False)
            if "trouble" in answer and not self._said:
                self._say(answer["trouble"])

    def _say(self, why: str) -> None:
        self._said = True
        again = shlex.join(["autoscout", "track", str(self._folder.path), "--to", self._name])
        notices.warning("%s: %s. The study is not affected; to send what is missing: %s", self._name, why.rstrip("."), again)


__all__ = ["SEND_S", "WAIT_S", "Shown", "Tracking", "check_trackers"]
