"""The processes of one training run on one machine: started, read and ended together. Standard library only."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from autoscout.common.cache import cache_folder
from autoscout.common.processes import descendants, opened, running
from autoscout.core.clock import RealClock
from autoscout.training import CONFIG
from autoscout.training import STEPS as STEPS_VARIABLE
from autoscout.training.nodes import Place, node_environment
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
LOG_CHARS = 20_000  # of the log of a process that failed
CLOCK = RealClock()


class LocalRun:
    """The processes of a run on this machine: a launcher or one process per rank, in this process group.

    Args:
        trial: What to run.
        folder: Of the trial.
        port: Where the processes meet.
        place: Which of several machines this is; None where it is the only one.
        interface: By which it reaches the others.
    """

    def __init__(self, trial: Mapping[str, Any], folder: Path, port: int, place: Place | None = None, interface: str = "") -> None:
        self.folder = folder
        self.logs: list[Path] = []
        self._read: dict[Path, int] = {}  # bytes, by file of reports
        shutil.rmtree(folder / STEPS, ignore_errors=True)  # of an earlier run
        (folder / STEPS).mkdir()
        world = int(trial["ranks"])  # 0: a launcher knows how many
        ranks = world if place is None else world and int(trial["local"])
        self.first = 0 if place is None or not world else place.rank * ranks
        """Rank of the first process here."""
        inherited = {**os.environ, **trial["env"]}
        self._compiled = extensions_folder(trial.get("program") or trial["argv"][0], inherited)
        clear_locks(self._compiled)
        common = {
            **inherited,
            "PATH": f"{inherited.get('PATH', os.defpath)}:{Path(sys.executable).parent}",  # torchrun is next to python
            EXTENSIONS: str(self._compiled),
            CONFIG: json.dumps(trial["config"]),
            STEPS_VARIABLE: str(folder / STEPS),
            FOLDER_VARIABLE: str(folder),
            PORT_VARIABLE: str(port),
            **meeting(trial, port, place),
        }
        common.setdefault("PYTHONUNBUFFERED", "1")  # what a process said is in its log even if it is killed
        if interface:
            common.setdefault("GLOO_SOCKET_IFNAME", interface)  # by itself gloo takes that of the host's name, often the loopback
        if ranks > 1:
            common.setdefault("OMP_NUM_THREADS", "1")  # as torchrun does
        own = [
            {"RANK": str(self.first + rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(ranks)}
            for rank in range(ranks)
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

    def reports(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """What was reported since the last time, by file."""
        for path in sorted((self.folder / STEPS).glob("rank*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._read[path] = self._read.get(path, 0) + len(whole)
            for line in whole.splitlines():
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    report = json.loads(line)
                    yield path.name, {**report, "at_s": float(report["at_s"])}

    def call(self, turn: int) -> None:
        """Have the processes continue with a configuration."""
        (self.folder / STEPS / f"{CALL}{turn}").touch()

    def has_ended(self) -> bool:
        return all(process.poll() is not None for process in self.processes)

    def broken(self) -> tuple[int, int] | None:
        """Number and exit code of the process that failed first; when several have, the one that was killed."""
        failed = [(number, code) for number, process in enumerate(self.processes) if (code := process.poll()) not in (None, 0)]
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

    def compiles(self) -> bool:
        """Whether an extension is being compiled."""
        return bool(compiling(self._compiled))

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


def meeting(trial: Mapping[str, Any], port: int, place: Place | None) -> dict[str, str]:
    """Where the processes of a run meet, in the words of PyTorch and in those from which torchrun takes its flags."""
    if place is not None:
        return node_environment(place, int(trial["local"]), port)
    address = "127.0.0.1"
    if int(trial["nodes"]) > 1:  # the command reaches the other machines by itself, and they must reach this one
        address = os.environ.get("MASTER_ADDR") or socket.gethostname()
    variables = {"MASTER_ADDR": address, "MASTER_PORT": str(port)}
    return {**variables, **{f"PET_{name}": value for name, value in variables.items()}}  # so two runs do not meet at torchrun's usual port


def free_port(*, everywhere: bool = False) -> int:
    """A port that nobody listens on: of 127.0.0.1, or of all addresses of this machine."""
    with socket.socket() as probe:
        probe.bind(("" if everywhere else "127.0.0.1", 0))
        return int(probe.getsockname()[1])
