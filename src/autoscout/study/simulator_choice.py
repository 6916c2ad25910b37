"""Which simulator informs a search when nobody names one: the first that understands the task. Decided once, when a study begins."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from autoscout.core import plugins
from autoscout.core.errors import AutoScoutError, ConfigError
from autoscout.core.protocols import Simulator
from autoscout.core.seeds import stream
from autoscout.core.task import Task
from autoscout.space import Space

AUTO, NONE = "auto", "none"
KEY = "informed_by"
"""Where the record of a study keeps the simulator that was found for it."""
DRAWN = 16
"""Configurations that are predicted besides the default: that one alone may be said not to run."""


def understands(simulator: Simulator, space: Space, task: Task) -> str:
    """Why a simulator cannot predict a task; empty when it can: it reads a knob, complains of nothing and has an answer."""
    if not simulator.knobs & space.knobs.keys():
        return "it reads none of the knobs"
    rng = stream(0, "foresight")
    drawn = (space.sample(rng) for _ in range(DRAWN))
    try:
        values = simulator.predict([space.default(), *(config for config in drawn if config is not None)], task).value
    except ConfigError as error:
        return "; ".join(str(fault) for fault in error.faults)
    return "" if (np.nan_to_num(values) > 0.0).any() else f"it has no answer for {task.objective.metric}"


def informant(space: Space, task: Task) -> str:
    """Name of the first simulator, of those that need no trials to predict, that understands a task; empty when there is none."""
    for name in plugins.available("simulator"):
        try:
            kind = plugins.get("simulator", name)
        except AutoScoutError:
            continue  # packages that are not installed
        if getattr(kind, "ready", False) and not understands(kind(), space, task):
            return name
    return ""


def can_be_told(searcher: str) -> bool:
    """Whether a searcher takes a simulator's predictions."""
    return "simulator" in inspect.signature(plugins.get("searcher", searcher)).parameters


def written(name: str) -> dict[str, Any]:
    """The entry for the record of a study."""
    return {KEY: name} if name else {}


def read(spec: Mapping[str, object]) -> str:
    """The simulator that the record of a study names; empty for one that began without."""
    found = spec.get(KEY)
    return found if isinstance(found, str) else ""


def sentence(name: str) -> str:
    """`informed by the simulator training`."""
    return f"informed by the simulator {name}"
