"""The processes of one training run: started, followed through the steps they report, and ended together. Standard library only."""

from __future__ import annotations

import contextlib
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

from autoscout.common.processes import descendants, running
from autoscout.core.clock import RealClock
from autoscout.training import CONFIG
from autoscout.training import STEPS as STEPS_VARIABLE
from autoscout.training.extensions import VARIABLE as EXTENSIONS
from autoscout.training.extensions import clear_locks, compiling, extensions_folder
from autoscout.training.files import CALL, STEPS

GRACE_S = 2.0  # between asking a process to end and killing it
TURN_POLL_S = 0.02
LOG_CHARS = 20_000  # of the log of a process that failed
CLOCK = RealClock()


@dataclass
class Seen:
    """What one process has reported so far."""

    steps: list[dict[str, Any]] = field(default_factory=list)
    stage: str = "starting"
    read: int = 0  # bytes of its file
    turn: int = 0  # which configuration, where it measures several
    turned_s: float = 0.0  # when it began with that


class Run:
    """A launcher or one process per rank, in this process group."""

    def __init__(self, given: Mapping[str, Any], folder: Path) -> None:
        self.folder = folder
        self.began_s = CLOCK.span_s()
        self._seen: dict[str, Seen] = {}
        self._turn = 0
        self.logs: list[Path] = []
        shutil.rmtree(folder / STEPS, ignore_errors=True)  # of an earlier run
        (folder / STEPS).mkdir()
        self._ranks = ranks = int(given["ranks"])  # 0: a launcher knows how many
        port = str(free_port())
        inherited = {**os.environ, **given["env"]}
        self._compiled = extensions_folder(given["argv"][0], inherited)
        clear_locks(self._compiled)
        common = {
            **inherited,
            EXTENSIONS: str(self._compiled),
            CONFIG: json.dumps(given["config"]),
            STEPS_VARIABLE: str(folder / STEPS),
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
        self.processes = [self._start(given, {**common, **more}, number) for number, more in enumerate(own or [{}])]

    def _start(self, given: Mapping[str, Any], environment: Mapping[str, str], number: int) -> subprocess.Popen[bytes]:
        self.logs.append(self.folder / f"rank{number}.log")
        argv = [_filled(str(word), self.folder, environment["MASTER_PORT"]) for word in given["argv"]]
        with self.logs[-1].open("wb") as log:
            try:
                return subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=given["cwd"] or None
                )
            except OSError as error:  # as a shell would say it
                return subprocess.Popen(["/bin/sh", "-c", 'echo "$0" >&2; exit 127', str(error)], stdout=log, stderr=subprocess.STDOUT)

    def look(self) -> None:
        """Read what was reported since the last time."""
        for path in sorted((self.folder / STEPS).glob("rank*.jsonl")):
            seen = self._seen.setdefault(path.name, Seen())
            with path.open("rb") as file:
                file.seek(seen.read)
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            seen.read += len(whole)
            for line in whole.splitlines():
                self._take(seen, line)

    def _take(self, seen: Seen, line: bytes) -> None:
        try:
            found = json.loads(line)
            at_s = float(found["at_s"])
        except (ValueError, KeyError, TypeError):
            return
        if "turn" in found:
            seen.turn, seen.turned_s, seen.stage, seen.steps = int(found["turn"]), at_s, "building", []
        elif "stage" in found:
            seen.stage = str(found["stage"])
        else:
            seen.stage = "training"
            seen.steps.append({**found, "at_s": at_s})

    @property
    def stage(self) -> str:
        """The earliest stage that any process is in."""
        order = ("starting", "building", "training")
        stages = [seen.stage for seen in self._seen.values()]
        return min(stages, key=lambda stage: order.index(stage) if stage in order else len(order), default="starting")

    def steps(self) -> list[list[dict[str, Any]]]:
        """The steps that all processes have finished: for each the reports, one per process."""
        if len(self._seen) < self._ranks:
            return []  # one of them has not said anything yet
        return [list(reports) for reports in zip(*(seen.steps for seen in self._seen.values()), strict=False)]

    def next_turn(self, limit_s: float) -> bool:
        """Have all processes continue with the next configuration; False when they have ended, or do not get there in time."""
        self._turn += 1
        (self.folder / STEPS / f"{CALL}{self._turn}").touch()
        deadline_s = CLOCK.span_s() + limit_s
        while CLOCK.span_s() < deadline_s:
            over = self.ended()
            self.look()
            if all(seen.turn == self._turn for seen in self._seen.values()):
                self.began_s = max(seen.turned_s for seen in self._seen.values())
                return True
            if over or self.broken() is not None:
                return False
            CLOCK.sleep(TURN_POLL_S)
        return False

    def ended(self) -> bool:
        return all(process.poll() is not None for process in self.processes)

    def broken(self) -> tuple[int, int] | None:
        """Rank and exit code of the process that failed first; when several have, the one that was killed."""
        failed = [(rank, code) for rank, process in enumerate(self.processes) if (code := process.poll()) not in (None, 0)]
        return min(failed, key=lambda found: (found[1] > 0, found[0]), default=None)

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
    """A word of a command with what is known only here."""
    return word.replace("{hostfile}", str(folder / "hostfile")).replace("{folder}", str(folder)).replace("{port}", port)


def durations(steps: Sequence[Sequence[Mapping[str, Any]]], began_s: float) -> list[float]:
    """Seconds of each step, the slowest process counting; the first from `began_s` on."""
    ends = [max(report["at_s"] for report in reports) for reports in steps]
    return [end - start for start, end in zip([began_s, *ends], ends, strict=False)]


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
