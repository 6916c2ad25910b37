"""Holds one allocation: a small process that starts `salloc`, and ends it when its own standard input ends, however AutoScout ended.

`salloc` alone is not enough. It does not look at its standard input while it waits for nodes, and one that is told to end while its
command does can be left running. What it leaves is cancelled by the name of the job.

Standard library only: this runs in a bare interpreter. Run as `python guardian.py NAME COMMAND...`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading

ENDING_S = 2.0
CANCEL_S = 30.0


def main(name: str, command: list[str]) -> int:
    """Until the command or standard input ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # told to end by its standard input only
    client = subprocess.Popen(command, stdin=subprocess.PIPE, preexec_fn=_usual_signals)  # noqa: PLW1509 no threads yet
    threading.Thread(target=_when_input_ends, args=(client, name), daemon=True).start()
    return client.wait()


def _usual_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _when_input_ends(client: subprocess.Popen[bytes], name: str) -> None:
    while os.read(0, 4096):
        pass
    assert client.stdin is not None
    client.stdin.close()  # ends an allocation that was granted
    with contextlib.suppress(subprocess.TimeoutExpired):
        client.wait(ENDING_S)
        os._exit(0)
    client.terminate()  # ends one that waits
    with contextlib.suppress(subprocess.TimeoutExpired):
        client.wait(ENDING_S)
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(["scancel", "--me", f"--name={name}"], timeout=CANCEL_S, check=False, stdin=subprocess.DEVNULL)
    client.kill()
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
