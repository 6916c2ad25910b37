"""How many threads numeric libraries should start in a trial that has only a part of the machine."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from autoscout.common.machine import machine_cores

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def thread_environment(cores: Sequence[int], environment: Mapping[str, str]) -> dict[str, str]:
    """One thread per core of the trial; nothing where it has the whole machine, or where the launch or the user's shell says a number."""
    if not cores or len(cores) >= len(machine_cores()):
        return {}
    if any(name in source for name in THREAD_VARIABLES for source in (environment, os.environ)):
        return {}
    return dict.fromkeys(THREAD_VARIABLES, str(len(cores)))
