"""Trials against the fake engine, for the tests of the trial program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autoscout.core.launch import Completed
from autoscout.core.trial import Measurement
from autoscout.load.outcome import outcome
from autoscout.load.plan import COMMAND, OUTPUTS, PLAN, TrialPlan

ENGINE = (sys.executable, "-m", "autoscout.testing.openai_server", "--port", "{port}", "--step-ms", "1")


def plan(*flags: str, load: Mapping[str, Any] | None = None, **more: Any) -> TrialPlan:
    """A small plan: short requests, short limits."""
    small = {"input_tokens": 32, "output_tokens": 8, "concurrency": 4, "requests": 40, "warmup": 4, **(load or {})}
    given = {"start_limit_s": 20.0, "limit_s": 60.0, "stall_s": 2.0, "grace_s": 2.0, **more}
    return TrialPlan.of({"serve": [*ENGINE, *flags], "model": "fake", "load": small, **given})


def run(given: TrialPlan, folder: Path, env: Mapping[str, str] | None = None, limit_s: float = 60.0) -> tuple[Measurement, Completed]:
    """Run a trial as an executor would, in a process group of its own, and check that nothing of it is left."""
    (folder / PLAN).write_text(given.text())
    began_s = time.monotonic()
    process = subprocess.Popen(
        COMMAND,
        cwd=folder,
        env={**os.environ, "AUTOSCOUT_CACHE": str(folder / "cache"), **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=limit_s)
        timed_out = False
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        timed_out = True
    left = members(process.pid)
    outputs = {name: (folder / name).read_text() for name in OUTPUTS if (folder / name).exists()}
    wall_s = time.monotonic() - began_s
    done = Completed(returncode=process.returncode, stdout=stdout, stderr=stderr, outputs=outputs, timed_out=timed_out, wall_s=wall_s)
    assert not left, f"left running: {left}"
    return outcome(done), done


def members(group: int) -> list[str]:
    """Command lines of the processes of a group or session that still run."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if str(group) in (fields[2], fields[3]) and fields[0] not in "ZX":
                found.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found
