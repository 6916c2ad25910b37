"""What the trial program and the processes of a training run exchange: files, stages, metrics and turns."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autoscout.core.clock import RealClock
from autoscout.training import hook

PROGRAM = "autoscout.training.trial"
INPUT = "train_input.json"
HOSTFILE = "hostfile"
WORK = "train.json"  # what the processes of a built-in run read
DEPTH = "AUTOSCOUT_DEPTH"  # variable with the layers that a process of the built-in model builds, instead of the model's own
FOLDER_VARIABLE, PORT_VARIABLE = "AUTOSCOUT_FOLDER", "AUTOSCOUT_PORT"  # in which a user's command finds its folder and a free port
RESULT = "result.json"
STAGE = "stage.txt"  # how far the slowest process came, so that a kill can be dated
STEPS = "steps"  # folder with one file of steps per process
CALL = "turn"  # file in it, with a number: processes that measure several configurations are to begin with that one
TURNS = "AUTOSCOUT_TURNS"  # variable with the configurations, as JSON, where there are several
FAILED = 3  # exit code that goes with a result that says why

STARTING = ("", "starting", "building")
"""Stages before the first step: memory that runs out then does so at the start."""

THROUGHPUTS = ("tokens_per_s", "samples_per_s")
METRICS = (*THROUGHPUTS, "step_ms", "peak_mem_gib", "free_mem_gib", "loss_after")
CURVES = ("loss", "tokens")  # samples by step that are kept of every measurement: the mean loss, and what all processes trained on
TFLOPS = "tflops_per_gpu"  # of the model's arithmetic, where the program that trains counts it


POLL_S = 0.01


class Turns:
    """The configurations of this process: its only one, or in turn those that the trial measures in one start.

    Ends early where nothing clean is left to build the next one on; the trial program then starts processes anew.
    """

    def __init__(self) -> None:
        self._listed: list[dict[str, Any]] = json.loads(os.environ.get(TURNS) or "[]")
        self._number = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if not self._listed:
            yield hook.config()
            return
        for number, knobs in enumerate(self._listed):
            self._number = number
            if number and not self._is_ready():
                return
            hook.report({"turn": number})
            yield dict(knobs)

    def is_over(self, here: str) -> bool:
        """Whether the trial has seen enough of this turn: the same answer in every process, since all must stop after the same step."""
        if not self._listed:
            return False
        import torch
        from torch import distributed

        called = torch.tensor([int(self._is_called(self._number + 1))], device=here)
        if distributed.is_initialized():
            distributed.broadcast(called, 0)
        return bool(called.item())

    def _is_ready(self) -> bool:
        """Wait for the call, then give back what the last configuration held."""
        while not self._is_called(self._number):
            RealClock().sleep(POLL_S)
        return reset_memory()

    def _is_called(self, number: int) -> bool:
        return Path(os.environ[hook.STEPS], f"{CALL}{number}").exists()


def reset_memory() -> bool:
    """Free memory, and begin to count its peak anew; False where the system cannot."""
    import torch

    gc.collect()
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        return True
    with contextlib.suppress(OSError, AttributeError):  # no Linux, or another C library
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        return True
    return False
