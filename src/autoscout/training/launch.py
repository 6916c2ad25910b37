"""The launch of a training trial, the same for every backend: what to start, in how many processes, and how long to watch it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from autoscout.core.launch import Launch, Resources
from autoscout.training.files import INPUT, RESULT, STAGE
from autoscout.training.machine import local_processes
from autoscout.training.workload import Training

PROGRAM = "autoscout.training.trial"
HOSTFILE = "hostfile"
WORK = "train.json"
"""What the processes of a built-in run read."""


def training_launch(
    *,
    argv: Sequence[str],
    ranks: int,
    config: Mapping[str, Any],
    workload: Training,
    hardware: Mapping[str, Any],
    reference: Mapping[str, Any],
    name: str,
    env: Mapping[str, str] | None = None,
    cwd: str = "",
    files: Mapping[str, str] | None = None,
    depths: Sequence[int] = (),
    layers: int = 0,
) -> Launch:
    """The launch.

    Args:
        argv: Command of one process, or of a launcher when `ranks` is 0; `{folder}` in it is the folder of the trial.
        ranks: Processes to start.
        config: What they find in `$AUTOSCOUT_CONFIG`.
        workload: How long to measure.
        hardware: `device`, `processes`, `cores`.
        reference: `key` of the losses to compare with, and whether this run is their `own` default.
        name: Of the configuration.
        env: Further variables.
        cwd: Where the processes run; the folder of the trial when empty.
        files: Further files for that folder.
        depths: Two depths to measure the built-in model at, instead of its own `layers`.
        layers: To extrapolate to.
    """
    plan = workload.plan
    given = {
        "argv": list(argv),
        "ranks": ranks,
        "env": dict(env or {}),
        "cwd": cwd,
        "config": dict(config),
        "plan": {name: getattr(plan, name) for name in ("warm_up", "least", "most", "settled", "enough_s")},
        "loss_steps": workload.loss_steps,
        "hang_s": workload.hang_s,
        "max_loss_gap": workload.max_loss_gap,
        "reference": dict(reference),
        "depths": list(depths),
        "layers": layers,
    }
    on_gpu = hardware["device"] == "cuda"
    return Launch(
        argv=(sys.executable, "-m", PROGRAM, INPUT),
        files={INPUT: json.dumps(given, indent=1, sort_keys=True) + "\n", **_hostfile(hardware), **(files or {})},
        resources=Resources(cpus=int(hardware["cores"]), gpus=local_processes(hardware) if on_gpu else 0),
        limit_s=workload.limit_s,
        outputs=(RESULT, STAGE),
        name=name,
    )


def _hostfile(hardware: Mapping[str, Any]) -> dict[str, str]:
    """The hosts in the form that launchers read, where the task names any; `{hostfile}` in a command is its path."""
    hosts = hardware.get("hosts") or {}
    return {HOSTFILE: "".join(f"{host} slots={slots}\n" for host, slots in hosts.items())} if hosts else {}
