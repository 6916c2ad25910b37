"""The supervisor: a small process between AutoScout and one trial, which answers for every process of that trial.

It reads one request line from standard input, runs the command in a session of its own, and prints one report line. As adoptive
parent of all orphans below it, it knows every descendant, also those that left the session, and it does not end before they
have. Standard input stays open as a lifeline: a byte on it means stop; its end means that AutoScout is gone, however that
happened, and the trial goes with it.

Standard library only: this runs in a bare interpreter that starts in a few hundredths of a second.
"""

from __future__ import annotations

import json
import os
import resource
import selectors
import signal
import sys
import time
from pathlib import Path
from typing import Any

from autoscout.common import processes
from autoscout.execute._shared.supervisor.contention import MachineCounters, conditions
from autoscout.execute._shared.supervisor.logs import BoundedLog

POLL_S = 0.5  # how often memory is read when nothing depends on it
LIMIT_POLL_S = 0.1  # and when a memory limit does
STUCK_S = 20.0  # how long a killed process may refuse to go (a hung driver or disk) before we report it and give up

Request = dict[str, Any]
"""argv, cwd, env, stdout, stderr, log_bytes, tail_bytes, limit_s, memory_bytes, grace_s, cores, cgroup, held."""

ENDED, TIMED_OUT, OUT_OF_MEMORY, CANCELLED, ORPHANED = "ended", "timed_out", "out_of_memory", "cancelled", "orphaned"


class Supervisor:
    """Runs one request. The stages are `start`, `watch` until something ends it, `stop`, `report`."""

    def __init__(self, request: Request, control: bytes) -> None:
        self._request = request
        self._control = control  # what came after the request line already
        self._parent = os.getppid()
        self._selector = selectors.DefaultSelector()
        self._logs: dict[int, BoundedLog] = {}
        self._main = 0
        self._main_status: int | None = None
        self._childless = False
        self._foreign_kills = 0  # processes ended by a SIGKILL that was not ours
        self._killing = False
        self._ended_s = 0.0
        self._peak_bytes = 0
        self._oom_before = self._oom_after = self._oom_kills()
        self._error = ""

    def run(self) -> dict[str, Any]:
        """Everything from start to report."""
        processes.adopt_orphans()
        for descriptor in self._request["held"]:
            os.set_inheritable(descriptor, False)  # ours to keep open, not the trial's
        self._listen()
        if not self._start():
            return {"returncode": None, "error": self._error}
        cores = self._request["cores"]
        self._started_s, before = time.monotonic(), MachineCounters.read(cores)
        why = ORPHANED
        try:
            why = self._watch()
        finally:
            ended_s, after = self._ended_s or time.monotonic(), MachineCounters.read(cores)
            leftovers = self._stop(why)
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s, wall_s = usage.ru_utime + usage.ru_stime, ended_s - self._started_s
        circumstances = conditions(before, after, wall_s, cpu_s)
        if leftovers:
            circumstances["leftover_processes"] = float(leftovers)
        return {**self._outcome(why), "wall_s": wall_s, "cpu_s": cpu_s, "peak_bytes": self._peak(usage), "conditions": circumstances}

    def _outcome(self, why: str) -> dict[str, Any]:
        code = None if self._main_status is None else os.waitstatus_to_exitcode(self._main_status)
        by_kernel = is_memory_kill(code, self._foreign_kills, self._oom_before, self._oom_after)
        return {
            "returncode": code if why == ENDED else None,
            "timed_out": why == TIMED_OUT,
            "out_of_memory": why == OUT_OF_MEMORY or (why == ENDED and by_kernel),
            "cancelled": why in (CANCELLED, ORPHANED),
            "error": "; ".join(filter(None, [self._error, *(log.error for log in self._logs.values())])),
        }

    def _listen(self) -> None:
        """Have signals and the lifeline wake the loop."""
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_read, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_stop_signal)
        self._selector.register(wake_read, selectors.EVENT_READ)
        self._wake = wake_read
        self._selector.register(0, selectors.EVENT_READ)

    def _on_stop_signal(self, *_: object) -> None:
        self._control += b"s"

    def _start(self) -> bool:
        """Fork and exec; whether the program started is known from a pipe that a successful exec closes."""
        request = self._request
        pipes = {name: os.pipe() for name in ("stdout", "stderr")}
        for name, (read, _) in pipes.items():
            os.set_blocking(read, False)
            self._logs[read] = BoundedLog(Path(request[name]), request["log_bytes"], request["tail_bytes"])
            self._selector.register(read, selectors.EVENT_READ)
        trouble_read, trouble_write = os.pipe()
        me = os.getpid()
        self._main = os.fork()
        if self._main == 0:
            _become(request, me, {1: pipes["stdout"][1], 2: pipes["stderr"][1]}, trouble_write)
        os.close(trouble_write)
        for _, write in pipes.values():
            os.close(write)
        with open(trouble_read, "rb") as file:  # noqa: PTH123 - a descriptor, not a path
            self._error = file.read().decode(errors="replace")
        if self._error:
            self._stop(ENDED)
        return not self._error

    def _watch(self) -> str:
        """Wait for the first of: the end of the command, a limit, a request to stop, the end of AutoScout."""
        request = self._request
        deadline_s = self._started_s + request["limit_s"] if request["limit_s"] is not None else float("inf")
        period_s = LIMIT_POLL_S if request["memory_bytes"] else POLL_S
        next_s = self._started_s + 0.02
        while True:
            self._reap()
            now_s = time.monotonic()
            if self._main_status is not None:
                self._ended_s = now_s
                return ENDED
            if self._control:
                return CANCELLED
            if now_s >= deadline_s:
                return TIMED_OUT
            if now_s >= next_s:
                if self._is_over_memory():
                    return OUT_OF_MEMORY
                if os.getppid() != self._parent:
                    return ORPHANED
                next_s = time.monotonic() + period_s
            if not self._pump(min(deadline_s, next_s) - time.monotonic()):
                return ORPHANED

    def _pump(self, wait_s: float) -> bool:
        """Move what the trial says into its logs, for at most `wait_s`; False once the lifeline is cut."""
        alive = True
        for key, _ in self._selector.select(max(0.0, wait_s)):
            if key.fd == self._wake:
                os.read(self._wake, 4096)
            elif key.fd == 0:
                control = os.read(0, 4096)
                self._control += control
                if not control:
                    self._selector.unregister(0)
                    alive = False
            else:
                self._read(key.fd)
        return alive

    def _read(self, descriptor: int) -> bool:
        try:
            data = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return False
        if data:
            self._logs[descriptor].write(data)
        else:
            self._selector.unregister(descriptor)
        return bool(data)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._childless = True
                return
            self._childless = False
            if pid == 0:
                return
            if pid == self._main:
                self._main_status = status
            if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL and not self._killing:
                self._foreign_kills += 1

    def _family(self) -> list[int]:
        return processes.descendants(os.getpid(), group=self._main)

    def _is_over_memory(self) -> bool:
        family = self._family()
        usage = processes.usage(family)
        self._peak_bytes = max(self._peak_bytes, usage.resident)
        limit = self._request["memory_bytes"]
        return bool(limit) and usage.own > limit and processes.own_exactly(family) > limit

    def _peak(self, usage: resource.struct_rusage) -> int:
        unit = 1 if sys.platform == "darwin" else 1024
        return max(self._peak_bytes, usage.ru_maxrss * unit)  # the second sees peaks between two looks, of one process

    def _stop(self, why: str) -> int:
        """End all that is left of the trial and empty its pipes; returns how many processes outlived the command itself."""
        self._reap()
        leftovers = 0 if self._childless else len(self._family())
        gentle = why not in (OUT_OF_MEMORY, ORPHANED)
        if leftovers and gentle:
            self._signal(self._family(), signal.SIGTERM, signal.SIGCONT)
            self._until_gone(self._request["grace_s"])
        self._killing = True
        deadline_s = time.monotonic() + STUCK_S
        while not self._is_gone() and time.monotonic() < deadline_s:
            family = self._family()
            self._signal(family, signal.SIGSTOP)  # so that none forks while we count
            self._signal({*family, *self._family()}, signal.SIGKILL)
            self._until_gone(0.05)
        if not self._is_gone():
            stuck = ", ".join(map(str, self._family()))
            self._error = f"processes {stuck} were killed but did not go within {STUCK_S:.0f} s"
        for descriptor, log in self._logs.items():
            while self._read_rest(descriptor):
                pass
            log.close()
        self._leave_cgroup()
        return leftovers if why == ENDED else 0

    def _read_rest(self, descriptor: int) -> bool:
        return descriptor in self._selector.get_map() and self._read(descriptor)

    def _is_gone(self) -> bool:
        self._reap()
        return self._childless and not self._family()

    def _until_gone(self, wait_s: float) -> None:
        deadline_s = time.monotonic() + wait_s
        while not self._is_gone() and time.monotonic() < deadline_s:
            self._pump(min(0.05, max(0.0, deadline_s - time.monotonic())))

    def _signal(self, pids: Any, *numbers: signal.Signals) -> None:
        for pid in pids:
            for number in numbers:
                try:
                    os.kill(pid, number)
                except (ProcessLookupError, PermissionError):
                    continue  # gone, or it changed its user: `_stop` reports what cannot be killed

    def _oom_kills(self) -> int | None:
        cgroup = self._request["cgroup"]
        if cgroup:
            try:
                events = dict(line.split() for line in Path(cgroup, "memory.events").read_text().splitlines())
                return int(events["oom_kill"])
            except (OSError, KeyError, ValueError):
                pass
        return processes.oom_kills()

    def _leave_cgroup(self) -> None:
        self._oom_after = self._oom_kills()
        if self._request["cgroup"]:
            if (self._oom_after or 0) > (self._oom_before or 0):
                self._peak_bytes = max(self._peak_bytes, self._request["memory_bytes"])  # met between two looks
            try:
                Path(self._request["cgroup"]).rmdir()
            except OSError:
                return  # still holds a process that cannot be killed


def is_memory_kill(code: int | None, foreign_kills: int, before: int | None, after: int | None) -> bool:
    """Whether a command that ended by itself was a victim of the kernel's memory killer.

    The kernel counted a victim meanwhile, and something here fits: a SIGKILL that we did not send, or a command that failed
    (engines answer the death of a worker with an error of their own).
    """
    counted = before is not None and after is not None and after > before
    return counted and (foreign_kills > 0 or code not in (0, None))


def _become(request: Request, parent: int, streams: dict[int, int], trouble: int) -> None:
    """Turn this child into the command. Never returns; what goes wrong is written to `trouble`."""
    try:
        os.setsid()
        processes.die_with_parent(parent)
        _join(request["cgroup"])
        processes.pin(request["cores"] or ())
        processes.volunteer_for_oom()
        _, hard = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, hard))  # the core of a model server would fill the disk
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        for target, source in streams.items():
            os.dup2(source, target)
        os.chdir(request["cwd"])
        os.execvpe(request["argv"][0], request["argv"], request["env"])
    except BaseException as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else repr(error)
        os.write(trouble, f"cannot start {request['argv'][0]!r}: {reason}".encode(errors="replace"))
    finally:
        os._exit(127)


def _join(cgroup: str | None) -> None:
    if cgroup:
        try:
            Path(cgroup, "cgroup.procs").write_text(str(os.getpid()))
        except OSError:
            return  # not ours to move into; the supervisor still checks memory itself


def main() -> None:
    """Read the request, run it, print the report."""
    data = b""
    while b"\n" not in data:
        chunk = os.read(0, 1 << 16)
        if not chunk:
            return  # AutoScout ended before it said what to do
        data += chunk
    line, _, control = data.partition(b"\n")
    report = Supervisor(json.loads(line), control).run()
    try:
        os.write(1, json.dumps(report).encode() + b"\n")
    except BrokenPipeError:
        return  # no reader is left
