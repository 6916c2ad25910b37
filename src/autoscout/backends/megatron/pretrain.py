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


def follow(lines: Iterable[str], run: dict[str, Any], out: TextIO, *, tells: bool = True) -> None:
    """Report every iteration that the lines tell about, or only memory where the iterations are told on another machine.

    A step ends when its line is read; later ones end as long after the one before as Megatron itself says that they took, since lines of
    several processes may wait for each other.
    """
    ended_s, memory_gib = 0.0, 0.0
    for line in lines:
        out.write(line)
        out.flush()
        if (peak_gib := peak_memory_gib(line)) is not None and peak_gib > memory_gib:
            memory_gib = peak_gib
            if not tells:
                hook.report({"max_gib": memory_gib})
        reading = iteration(line)
        if reading is None or not tells:
            continue
        ended_s = ended_s + reading.elapsed_ms / 1000 if ended_s else time.monotonic()
        samples = reading.samples or int(run["global_batch"])
        step: dict[str, Any] = {"at_s": ended_s, "tokens": samples * int(run["sequence"]), "samples": samples, "mem_gib": memory_gib}
        if run["memory_gib"]:
            step["mem_total_gib"] = float(run["memory_gib"])
        if reading.tflops is not None:
            step["tflops"] = reading.tflops
        if reading.loss is not None or reading.broken:
            step["loss"] = None if reading.broken else reading.loss
        hook.report(step)


def main(path: str, *more: str) -> int:
    """Start the script, follow it to its end and leave with its exit code."""
    run = json.loads(Path(path).read_text())
    folder = str(Path(path).resolve().parent)
    rank, nodes = int(os.environ.get("NODE_RANK", "0")), int(os.environ.get("NNODES", "1"))
    values = {
        "{folder}": folder,
        "{host}": socket.gethostname(),
        "{address}": os.environ.get("MASTER_ADDR", "127.0.0.1"),
        "{port}": os.environ.get("MASTER_PORT", "29500"),
        "{node_rank}": str(rank),
    }
    tells = not run["everywhere"] or rank == nodes - 1  # the last rank prints the iterations, those of the others have none
    argv = []
    for word in (*run["argv"], *more):
        for name, value in values.items():
            word = word.replace(name, value)
        argv.append(word)
    if tells:
        hook.stage("building")
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", cwd=run["cwd"]
    ) as process:
        assert process.stdout is not None
        follow(process.stdout, run, sys.stdout, tells=tells)
    if process.returncode < 0:
        os.kill(os.getpid(), -process.returncode)  # end as it did, so that whoever waits sees the signal
    return process.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
