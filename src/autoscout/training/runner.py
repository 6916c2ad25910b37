"""The processes of one training run: started, followed through the steps they report, and ended together. Standard library only."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autoscout.common.cache import cache_folder
from autoscout.common.processes import descendants, opened, running
from autoscout.core.clock import RealClock
from autoscout.training import CONFIG
from autoscout.training import STEPS as STEPS_VARIABLE
from autoscout.training.protocol import CALL, FOLDER_VARIABLE, PORT_VARIABLE, STEPS

EXTENSIONS = "TORCH_EXTENSIONS_DIR"
LOCK = "lock"
AGAIN_S = 0.5  # between two looks: who releases a lock closes the file, and then removes it


def extensions_folder(program: str, environment: Mapping[str, str]) -> Path:
    """Where a program compiles: in the folder that the user named for extensions, else in the cache; its own there.

    Args:
        program: First word of its command. What one environment has compiled another cannot use.
        environment: Of the program.
    """
    path = shutil.which(program, path=environment.get("PATH")) or program
    whose = hashlib.sha256(path.encode()).hexdigest()[:8]
    return cache_folder("torch_extensions", environment.get(EXTENSIONS, "")).absolute() / f"{socket.gethostname()}-{whose}"


def clear_locks(folder: Path) -> None:
    """Remove the locks that nobody holds.

    PyTorch holds a file `lock` next to an extension while it compiles it, and everybody else waits until that file is gone. A trial that
    is killed meanwhile leaves it, and all later ones would wait in vain. Whoever holds the lock has the file open, so one that nobody has
    open is left over. That can be told of processes on this machine only: trials have a folder for each machine.
    """
    if locks := _unheld(folder):
        RealClock().sleep(AGAIN_S)
        for path, *_ in locks & _unheld(folder):
            path.unlink(missing_ok=True)


def compiling(folder: Path) -> list[str]:
    """Names of the extensions that somebody compiles there."""
    return sorted(path.parent.name for path in folder.glob(f"*/{LOCK}"))


def _unheld(folder: Path) -> set[tuple[Path, int, int]]:
    """Locks of this user that no process has open, with what tells one from another of the same name; none where /proc is missing."""
    locks = {}
    for path in folder.glob(f"*/{LOCK}"):
        with contextlib.suppress(FileNotFoundError):  # released just now
            locks[path] = path.stat()
    held = opened(LOCK) if locks else None
    if held is None:
        return set()
    return {
        (path, status.st_ino, status.st_mtime_ns)
        for path, status in locks.items()
        if status.st_uid == os.getuid() and (status.st_dev, status.st_ino) not in held
    }


GRACE_S = 2.0  # between asking a process to end and killing it
TURN_POLL_S = 0.02
LOG_CHARS = 20_000  # of the log of a process that failed
CLOCK = RealClock()


@dataclass
class ProcessReports:
    """What one process has reported so far."""

    steps: list[dict[str, Any]] = field(default_factory=list)
    stage: str = "starting"
    read: int = 0  # bytes of its file
    turn: int = 0  # which configuration, where it measures several
    turned_s: float = 0.0  # when it began with that


class TrainingRun:
    """A launcher or one process per rank, in this process group."""

    def __init__(self, trial: Mapping[str, Any], folder: Path) -> None:
        self.folder = folder
        self.began_s = CLOCK.span_s()
        self._reports: dict[str, ProcessReports] = {}
        self._turn = 0
        self.logs: list[Path] = []
        shutil.rmtree(folder / STEPS, ignore_errors=True)  # of an earlier run
        (folder / STEPS).mkdir()
        self._ranks = ranks = int(trial["ranks"])  # 0: a launcher knows how many
        port = str(free_port())
        inherited = {**os.environ, **trial["env"]}
        self._compiled = extensions_folder(trial.get("program") or trial["argv"][0], inherited)
        clear_locks(self._compiled)
        common = {
            **inherited,
            EXTENSIONS: str(self._compiled),
            CONFIG: json.dumps(trial["config"]),
            STEPS_VARIABLE: str(folder / STEPS),
            FOLDER_VARIABLE: str(folder),
            PORT_VARIABLE: port,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            # torchrun takes its flags from such variables, so that two runs at once do not meet at its usual port.
            "PET_MASTER_ADDR": "127.0.0.1",
            "PET_MASTER_PORT": port,
        }
        common.setdefault("PYTHONUNBUFFERED", "1")  # what a process said is in its log even if it is killed
        if ranks > 1:
            common.setdefault("OMP_NUM_THREADS", "1")  # as torchrun does
        own = [
            {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)} for rank in range(ranks)
        ]
        self.processes = [self._start(trial, {**common, **more}, number) for number, more in enumerate(own or [{}])]

    def _start(self, trial: Mapping[str, Any], environment: Mapping[str, str], number: int) -> subprocess.Popen[bytes]:
        self.logs.append(self.folder / f"rank{number}.log")
        argv = [_filled(str(word), self.folder, environment["MASTER_PORT"]) for word in trial["argv"]]
        with self.logs[-1].open("wb") as log:
            try:
                return subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=trial["cwd"] or None
                )
            except OSError as error:  # as a shell would say it
                return subprocess.Popen(["/bin/sh", "-c", 'echo "$0" >&2; exit 127', str(error)], stdout=log, stderr=subprocess.STDOUT)

    def look(self) -> None:
        """Read what was reported since the last time."""
        for path in sorted((self.folder / STEPS).glob("rank*.jsonl")):
            reports = self._reports.setdefault(path.name, ProcessReports())
            with path.open("rb") as file:
                file.seek(reports.read)
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            reports.read += len(whole)
            for line in whole.splitlines():
                self._take(reports, line)

    def _take(self, reports: ProcessReports, line: bytes) -> None:
        try:
            report = json.loads(line)
            at_s = float(report["at_s"])
        except (ValueError, KeyError, TypeError):
            return
        if "turn" in report:
            reports.turn, reports.turned_s, reports.stage, reports.steps = int(report["turn"]), at_s, "building", []
        elif "stage" in report:
            reports.stage = str(report["stage"])
        else:
            reports.stage = "training"
            reports.steps.append({**report, "at_s": at_s})

    @property
    def stage(self) -> str:
        """The earliest stage that any process is in."""
        order = ("starting", "building", "training")
        stages = [reports.stage for reports in self._reports.values()]
        return min(stages, key=lambda stage: order.index(stage) if stage in order else len(order), default="starting")

    def steps(self) -> list[list[dict[str, Any]]]:
        """The steps that all processes have finished: for each the reports, one per process."""
        if len(self._reports) < self._ranks:
            return []  # one of them has not said anything yet
        return [list(reports) for reports in zip(*(reports.steps for reports in self._reports.values()), strict=False)]

    def next_turn(self, limit_s: float) -> bool:
        """Have all processes continue with the next configuration; False when they have ended, or do not get there in time."""
        self._turn += 1
        (self.folder / STEPS / f"{CALL}{self._turn}").touch()
        deadline_s = CLOCK.span_s() + limit_s
        while CLOCK.span_s() < deadline_s:
            over = self.has_ended()
            self.look()
            if all(reports.turn == self._turn for reports in self._reports.values()):
                self.began_s = max(reports.turned_s for reports in self._reports.values())
                return True
            if over or self.broken() is not None:
                return False
            CLOCK.sleep(TURN_POLL_S)
        return False

    def has_ended(self) -> bool:
        return all(process.poll() is not None for process in self.processes)

    def broken(self) -> tuple[int, int] | None:
        """Rank and exit code of the process that failed first; when several have, the one that was killed."""
        failed = [(rank, code) for rank, process in enumerate(self.processes) if (code := process.poll()) not in (None, 0)]
        return min(failed, key=lambda failure: (failure[1] > 0, failure[0]), default=None)

    def end(self) -> None:
        """End all processes below this one: ask, then kill."""
        for kind in (signal.SIGTERM, signal.SIGKILL):
            pids = running(descendants(os.getpid()))
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, kind)
            deadline_s = CLOCK.span_s() + GRACE_S
            while running(pids) and CLOCK.span_s() < deadline_s:
                for process in self.processes:
                    process.poll()
                CLOCK.sleep(0.02)

        # Those that were adopted; nobody else waits for them, and some arrive only when the process between has ended.
        deadline_s = CLOCK.span_s() + GRACE_S
        while descendants(os.getpid()) and CLOCK.span_s() < deadline_s:
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            CLOCK.sleep(0.01)

    def waits_for(self) -> str:
        """What it said last, and what it compiles: for a run that is stopped before its end."""
        names = ", ".join(compiling(self._compiled))
        return self.log(0) + (f"\nPyTorch was compiling {names}; the next trial resumes that" if names else "")

    def log(self, rank: int) -> str:
        """The end of what one process said."""
        path = self.logs[min(rank, len(self.logs) - 1)]
        return path.read_bytes()[-LOG_CHARS:].decode("utf-8", errors="replace") if path.exists() else ""


def _filled(word: str, folder: Path, port: str) -> str:
    """A word of a command of ours with what is known only here; the user's own command reads variables."""
    return word.replace("{folder}", str(folder)).replace("{port}", port)


def durations(steps: Sequence[Sequence[Mapping[str, Any]]], began_s: float) -> list[float]:
    """Seconds of each step, the slowest process counting; the first from `began_s` on."""
    ends = [max(report["at_s"] for report in reports) for reports in steps]
    return [end - start for start, end in zip([began_s, *ends], ends, strict=False)]


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
