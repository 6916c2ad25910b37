"""Runs launches for the tests of the `command` backend: real processes in a fresh folder, killed as a group at the limit."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

from autoscout.core.launch import Completed, Launch


def execute(launch: Launch, folder: Path) -> Completed:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in launch.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    argv = [word.replace("{folder}", str(folder)) for word in launch.argv]
    env = {**os.environ, **{name: text.replace("{folder}", str(folder)) for name, text in launch.env.items()}}
    began_s = time.monotonic()
    timed_out = False
    with (folder / "out").open("wb") as stdout, (folder / "err").open("wb") as stderr:
        process = subprocess.Popen(
            ["/bin/sh", "-c", argv[0]] if launch.shell else argv, cwd=folder, env=env, stdout=stdout, stderr=stderr, start_new_session=True
        )
        try:
            process.wait(launch.limit_s or 60)
        except subprocess.TimeoutExpired:
            timed_out = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return Completed(
        returncode=None if timed_out else process.returncode,
        stdout=(folder / "out").read_text(errors="replace"),
        stderr=(folder / "err").read_text(errors="replace"),
        outputs={name: (folder / name).read_text(errors="replace") for name in launch.outputs if (folder / name).is_file()},
        wall_s=time.monotonic() - began_s,
        timed_out=timed_out,
        folder=str(folder),
    )
