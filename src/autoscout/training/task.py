"""From a description to the task of a training backend and back, the same for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar, cast

from autoscout.common.fields import read_blocks, read_fields, refuse_if
from autoscout.core.config import Config
from autoscout.core.errors import Fault
from autoscout.core.task import Task
from autoscout.training.machine import Hardware, detect, one_machine
from autoscout.training.workload import Training, loss_key, read_goal

Kind = TypeVar("Kind", bound=Training)
Reader = Callable[[Mapping[str, Any], Mapping[str, Any]], tuple[Kind, list[Fault]]]
"""Reads a workload block, given the hardware: the workload filled up, and all that is wrong with it."""

MEASURING = frozenset(Training.model_fields) - {"seed"}
"""How a run is measured; nothing of it changes what is learnt."""


def read_training_task(
    system: str,
    given: Mapping[str, object],
    read: Reader[Kind],
    packages: Sequence[str],
    *,
    alone: bool = False,
    metrics: Sequence[str] = (),
) -> Task:
    """The task, filled up with facts of this machine.

    Args:
        system: The backend's name.
        given: The description.
        read: Of its workload.
        packages: Whose versions matter.
        alone: Take one process on a machine without GPUs, instead of two.
        metrics: That this system reports besides those of all training.

    Raises:
        ConfigError: all faults at once; those of the hardware first, since the workload is read by it.
    """
    blocks = read_blocks(given)
    hardware = detect(blocks.hardware)
    if alone and hardware["device"] == "cpu" and "processes" not in blocks.hardware:
        hardware["processes"] = 1
    wrong = read_fields(Hardware, hardware, "hardware")[1]
    refuse_if([*blocks.faults, *wrong] if wrong else [])
    workload, faults = read(blocks.workload, hardware)
    objective, more = read_goal(blocks.objective, workload.max_loss_gap, metrics)
    own = getattr(workload, "command", "") or getattr(workload, "checkout", "")
    refuse_if([*blocks.faults, *one_machine(hardware, own), *faults, *more])
    return Task(
        system=system,
        workload=workload.model_dump(),
        hardware=hardware,
        software={**{name: installed(name) for name in packages}, **blocks.software},
        objective=objective,
        budget=blocks.budget,
    )


def workload_of(kind: type[Kind], task: Task) -> Kind:
    """The workload of a task that the backend made."""
    made: Any = kind.model_construct(**{name: task.workload[name] for name in kind.model_fields if name in task.workload})
    return cast(Kind, made)


def reference(task: Task, config: Config, default: Config) -> dict[str, Any]:
    """Which losses a run is compared with: those of the default of the same task; `own` is the default itself."""
    facts = {name: value for name, value in task.workload.items() if name not in MEASURING and name != "depths"}
    return {"key": loss_key(facts, task.hardware, task.software, default), "own": config == default}


def installed(package: str) -> str:
    """Version of a package; empty where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
