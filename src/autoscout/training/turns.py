"""Several configurations in processes that are started once: what a process does between one and the next."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from autoscout.core.clock import RealClock
from autoscout.training import hook
from autoscout.training.files import CALL, TURNS

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
            if number and not self._ready():
                return
            hook.report({"turn": number})
            yield dict(knobs)

    def over(self, here: str) -> bool:
        """Whether the trial has seen enough of this turn: the same answer in every process, since all must stop after the same step."""
        if not self._listed:
            return False
        called = torch.tensor([int(self._called(self._number + 1))], device=here)
        if distributed.is_initialized():
            distributed.broadcast(called, 0)
        return bool(called.item())

    def _ready(self) -> bool:
        """Wait for the call, then give back what the last configuration held."""
        while not self._called(self._number):
            RealClock().sleep(POLL_S)
        return forgotten()

    def _called(self, number: int) -> bool:
        return Path(os.environ[hook.STEPS], f"{CALL}{number}").exists()


def forgotten() -> bool:
    """Free memory, and begin to count its peak anew; False where the system cannot."""
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
