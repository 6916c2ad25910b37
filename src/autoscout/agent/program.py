"""Runs verbs of this program as a person would, and reads the JSON document that they print."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autoscout.core.errors import ConfigError, Fault

PATIENCE_S = 300.0
"""For verbs that measure nothing: an estimate of a large cluster takes seconds, its first call on a cold disk more."""
ENDING_S = 20.0
"""A verb that was told to end gets this long to stop its trial before it is killed."""
TAIL = 2_000  # characters of standard error that say why a verb ended without a document


def command(words: Sequence[str]) -> list[str]:
    """The command line of a verb."""
    return [sys.executable, "-m", "autoscout", *words]


class Program:
    """Calls of the program, each in a process group of its own, ended with the server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()

    def document(self, words: Sequence[str], limit_s: float = PATIENCE_S) -> dict[str, Any]:
        """What a verb prints with `--json`.

        Raises:
            ConfigError: the verb refused, took longer than `limit_s`, or ended without a document.
        """
        process = subprocess.Popen(
            command([*words, "--json"]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        with self._lock:
            self._running.add(process)
        try:
            output, errors = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            end(process)
            rule = f"took longer than {limit_s:.0f} s and was ended"
            raise ConfigError(Fault(where=f"autoscout {words[0]}", rule=rule)) from None
        finally:
            with self._lock:
                self._running.discard(process)
        return read(words[0], output, errors)

    def close(self) -> None:
        """End what still runs."""
        with self._lock:
            running = list(self._running)
        for process in running:
            end(process)


def end(process: subprocess.Popen[str]) -> None:
    """Ask a verb to end, which stops its trials; kill its process group where it does not."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(ENDING_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # it leads a group of its own
        process.wait()


def read(verb: str, output: str, errors: str) -> dict[str, Any]:
    """The document that a verb printed.

    Raises:
        ConfigError: it printed its faults, or no document.
    """
    try:
        document = json.loads(output)
    except json.JSONDecodeError:
        tail = errors.strip()[-TAIL:] or "nothing was printed"
        raise ConfigError(Fault(where=f"autoscout {verb}", rule=f"ended without a document: {tail}")) from None
    if not isinstance(document, dict):
        document = {"rows": document}
    if set(document) == {"error", "faults"}:
        raise ConfigError([Fault(**{name: str(value) for name, value in fault.items()}) for fault in document["faults"]])
    return document


def folder_of(root: Path, name: str) -> Path:
    """The result folder of a study below the root that the server was given.

    Raises:
        ConfigError: the name leads elsewhere.
    """
    path = root / name
    if not name or path.parent != root or name in (".", ".."):
        rule = "must be the name of a study, not a path"
        raise ConfigError(Fault(where="study", value=repr(name), rule=rule, fix="`studies` lists them"))
    return path
