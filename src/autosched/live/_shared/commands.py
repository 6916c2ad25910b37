"""Commands of a cluster: bounded in time and output, ended with everything they started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence

from autosched.live_scheduler import LiveError
from autoscout.core.errors import Fault

MOST_BYTES = 256 * 2**20  # of what a command prints: a queue of a million jobs
SHOWN = 300  # characters of what it complained about


def run(command: Sequence[str], *, timeout_s: float, environment: Mapping[str, str] | None = None) -> str:
    """What a command prints.

    It gets a process group of its own, which is killed when the time is up. Output goes to a file, so a command that prints without end
    cannot fill memory.

    Args:
        command: Program and arguments.
        timeout_s: How long it may take.
        environment: Variables besides those of this process.

    Raises:
        LiveError: it is not there, took too long, printed too much, or failed.
    """
    where = " ".join(command[:3])
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        except OSError as error:
            raise LiveError(Fault(where=where, rule=f"cannot be started: {error.strerror}", fix="Is it installed here?")) from error
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise LiveError(Fault(where=where, rule=f"did not answer within {timeout_s:g} s")) from error
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if out.seek(0, os.SEEK_END) > MOST_BYTES:
            raise LiveError(Fault(where=where, rule=f"printed more than {MOST_BYTES} bytes"))
        out.seek(0)
        err.seek(0)
        printed = out.read().decode(errors="replace")
        if code != 0:
            complaint = " ".join((err.read(10_000).decode(errors="replace") or printed).split())[:SHOWN]
            raise LiveError(Fault(where=where, rule=f"failed with exit code {code}", value=complaint))
        return printed
