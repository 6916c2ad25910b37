"""Fake GPUs for the tests: a file that says what each holds, and processes to hold it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

STRANGER = os.getppid()
"""A process that lives as long as the tests and is none of ours."""


def process(pid: int = STRANGER, memory_gb: float = 40.0, **more: Any) -> dict[str, Any]:
    return {"pid": pid, "name": "trainer", "memory_gb": memory_gb, **more}


def write_gpus(path: Path, *gpus: list[dict[str, Any]], **more: Any) -> Path:
    """One GPU of 80 GB for each list of processes."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps([{"processes": inside, **more} for inside in gpus]))
    partial.rename(path)
    return path


@contextmanager
def tenant() -> Iterator[subprocess.Popen[bytes]]:
    """A process that leaves its GPU with the end of the block."""
    running = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    try:
        yield running
    finally:
        running.kill()
        running.wait()
