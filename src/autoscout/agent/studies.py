"""Starts studies that outlive the server, and says how they stand."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path
from typing import Any

from autoscout.agent.program import TAIL, Program, command, folder_of
from autoscout.agent.words import Subject, flags
from autoscout.core.actions import Action, ActionKind
from autoscout.core.clock import Clock, RealClock
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.state import State
from autoscout.web.api import entry_row, finite, studies_document
from autoscout.web.library import Library, StudyEntry
from autoscout.web.studies import StudyQuery

LOGS = ".agent"  # next to the result folders: what each run printed
BEGIN_S = 60.0
"""A study that has not stored its record after this long is reported as begun all the same."""
LOOK_S = 0.5  # between two looks at a study that somebody waits for
WAIT_MOST_S = 600.0  # so that a client's own limit is not met in silence


class Studies:
    """The studies below a folder.

    Args:
        root: Where result folders are; made where it is missing.
        program: Runs verbs.
        clock: For waiting.
    """

    def __init__(self, root: Path, program: Program, clock: Clock | None = None) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root
        self.program = program
        self.clock = clock or RealClock()
        self._library = Library(str(root), self.clock)
        self._lock = threading.Lock()
        self._runs: dict[str, subprocess.Popen[bytes]] = {}

    def rows(self) -> dict[str, Any]:
        """All studies, the newest first, and what is wrong with those that cannot be read."""
        self._look()
        for entry in self._library.entries():
            entry.follow(at_once=True)
        return finite(studies_document(self._library, StudyQuery()))  # type: ignore[no-any-return]

    def start(self, name: str, subject: Subject, bounds: dict[str, Any], options: list[str]) -> dict[str, Any]:
        """Start a study, or resume the one of that name, after a look at what it would run.

        Raises:
            ConfigError: the campaign is refused, or the study is under way.
        """
        folder_of(self.root, name)
        self._refuse_running(name)
        with subject.words() as words:
            line = ["tune", *words, *options, *flags(**bounds), "--experiment-name", name, "--output-dir", str(self.root)]
            plan = self.program.document([*line, "--dry-run"])
            return {"launches": len(plan["launches"]), "first": plan["launches"][0]["argv"], **self._run(name, line)}

    def resume(self, name: str, bounds: dict[str, Any]) -> dict[str, Any]:
        """Continue a study with more budget.

        Raises:
            ConfigError: there is no such study, or it is under way.
        """
        folder = self.folder(name)
        self._refuse_running(name)
        return self._run(name, ["resume", folder, *flags(**bounds)])

    def stop(self, name: str, reason: str) -> dict[str, Any]:
        """Ask a study to end when the trials under way are done.

        Raises:
            ConfigError: there is no such study.
        """
        entry = self._entry(name)
        if entry.state is not State.RUNNING:
            return {"name": name, "state": entry.state.value, "asked": False}
        entry.act(Action(kind=ActionKind.STOP, reason=reason))
        return {"name": name, "state": entry.state.value, "asked": True}

    def status(self, name: str, wait_s: float = 0.0, trials: int = 0) -> dict[str, Any]:
        """How a study stands; waits until it ends or has `trials` trials, at most `wait_s`.

        Raises:
            ConfigError: there is no such study.
        """
        until_s = self.clock.span_s() + min(wait_s, WAIT_MOST_S)
        while True:
            entry = self._entry(name)
            row: dict[str, Any] = finite(entry_row(entry))
            is_over = entry.state is not State.RUNNING and not self._is_alive(name)
            if is_over or (0 < trials <= row["trials"]) or self.clock.span_s() >= until_s:
                break
            self.clock.sleep(LOOK_S)
        return row | {
            "folder": self.folder(name),
            "actions": [action.to_json() for action in entry.view().actions],
            "log": self._log_tail(name),
        }

    def folder(self, name: str) -> str:
        """The result folder of a study.

        Raises:
            ConfigError: there is no such study.
        """
        folder = self._entry(name).folder
        return str(folder.path if folder else folder_of(self.root, name))

    def close(self) -> None:
        """Let the stores go; studies run on."""
        self._library.close()

    def _look(self) -> None:
        with self._lock:
            self._library.look()

    def _entry(self, name: str) -> StudyEntry:
        self._look()
        entries = self._library.entries()
        for entry in entries:
            if entry.record.name == name:
                entry.follow(at_once=True)
                return entry
        names = ", ".join(entry.record.name for entry in entries[:10]) or "none"
        log = self._log_tail(name)
        raise ConfigError(Fault(where="study", value=repr(name), rule="there is no such study", fix=f"Known: {names}. {log}".strip()))

    def _is_alive(self, name: str) -> bool:
        run = self._runs.get(name)
        return run is not None and run.poll() is None

    def _refuse_running(self, name: str) -> None:
        self._look()
        is_running = any(entry.record.name == name and entry.state is State.RUNNING for entry in self._library.entries())
        if is_running or self._is_alive(name):
            raise ConfigError(Fault(where="study", value=repr(name), rule="is under way", fix="Ask `status`, or `stop` it first"))

    def _log(self, name: str) -> Path:
        return self.root / LOGS / f"{name}.log"

    def _log_tail(self, name: str) -> str:
        path = self._log(name)
        return path.read_text(encoding="utf-8", errors="replace")[-TAIL:] if path.is_file() else ""

    def _run(self, name: str, words: list[str]) -> dict[str, Any]:
        """Start a verb in a session of its own and wait until its study is on record."""
        log = self._log(name)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            run = subprocess.Popen(command(words), stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
        self._runs[name] = run
        until_s = self.clock.span_s() + BEGIN_S
        while run.poll() is None and self.clock.span_s() < until_s:
            self._look()
            if any(entry.record.name == name and entry.state is State.RUNNING for entry in self._library.entries()):
                break
            self.clock.sleep(LOOK_S)
        if run.returncode not in (None, 0):
            raise ConfigError(Fault(where=f"autoscout {words[0]}", rule=f"ended with code {run.returncode}: {self._log_tail(name)}"))
        return {"name": name, "folder": str(folder_of(self.root, name)), "state": "running" if run.poll() is None else "ended"}
