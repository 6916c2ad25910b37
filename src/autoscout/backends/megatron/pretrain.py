"""Runs a training script of Megatron-LM and reports its iterations as steps: `python -m autoscout.backends.megatron.pretrain run.json`.

The file holds the command, the tokens of a sequence and the memory of a GPU. What the script prints goes to standard output as it comes.
Standard library only.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TextIO

from autoscout.backends.megatron.log import iteration, peak_memory_gib
from autoscout.training import hook

FILE = "run.json"


def follow(lines: Iterable[str], given: dict[str, Any], out: TextIO) -> None:
    """Report every iteration that the lines tell about.

    A step ends when its line is read; later ones end as long after the one before as Megatron itself says that they took, since lines of
    several processes may wait for each other.
    """
    ended_s, memory_gib = 0.0, 0.0
    for line in lines:
        out.write(line)
        out.flush()
        memory_gib = max(memory_gib, peak_memory_gib(line) or 0.0)
        found = iteration(line)
        if found is None:
            continue
        ended_s = ended_s + found.elapsed_ms / 1000 if ended_s else time.monotonic()
        samples = found.samples or int(given["global_batch"])
        step: dict[str, Any] = {"at_s": ended_s, "tokens": samples * int(given["sequence"]), "samples": samples, "mem_gib": memory_gib}
        if given["memory_gib"]:
            step["mem_total_gib"] = float(given["memory_gib"])
        if found.tflops is not None:
            step["tflops"] = found.tflops
        if found.loss is not None or found.broken:
            step["loss"] = None if found.broken else found.loss
        hook.report(step)


def main(path: str, *more: str) -> int:
    """Start the script, follow it to its end and leave with its exit code."""
    given = json.loads(Path(path).read_text())
    folder = str(Path(path).resolve().parent)
    known = {"{folder}": folder, "{host}": socket.gethostname(), "{port}": os.environ.get("MASTER_PORT", "29500")}
    argv = []
    for word in (*given["argv"], *more):
        for name, value in known.items():
            word = word.replace(name, value)
        argv.append(word)
    hook.stage("building")
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", cwd=given["cwd"]
    ) as process:
        assert process.stdout is not None
        follow(process.stdout, given, sys.stdout)
    if process.returncode < 0:
        os.kill(os.getpid(), -process.returncode)  # end as it did, so that whoever waits sees the signal
    return process.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
