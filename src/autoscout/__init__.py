"""AutoScout: which settings should I run this ML system with?

The names below are imported on first use, so that `import autoscout` stays quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "AskTellStudy": "study.ask_tell",
    "Budget": "core.task",
    "Campaign": "study.campaign",
    "Choice": "space",
    "Config": "core.config",
    "Fidelity": "core.trial",
    "Direction": "core.task",
    "Flag": "space",
    "Goal": "core.task",
    "Outcome": "api",
    "Grid": "space",
    "Infeasible": "core.errors",
    "Measurement": "core.trial",
    "Objective": "core.task",
    "Proposal": "core.trial",
    "Space": "space",
    "Status": "core.trial",
    "Study": "api",
    "Task": "core.task",
    "Trial": "core.trial",
    "create_study": "api",
    "load_study": "api",
    "maximize": "api",
    "minimize": "api",
    "optimize": "api",
    "read_space": "space",
    "tune": "api",
}

if TYPE_CHECKING:
    from autoscout.api import create_study, load_study, maximize, minimize, optimize, tune
    from autoscout.core.config import Config
    from autoscout.core.errors import Infeasible
    from autoscout.core.task import Budget, Direction, Goal, Objective, Task
    from autoscout.core.trial import Fidelity, Measurement, Proposal, Status, Trial
    from autoscout.space import Choice, Flag, Grid, Space, read_space
    from autoscout.study.ask_tell import AskTellStudy
    from autoscout.study.campaign import Campaign
    from autoscout.study.outcome import Outcome
    from autoscout.study.study import Study


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'autoscout' has no attribute {name!r}")
    return getattr(importlib.import_module(f"autoscout.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "AskTellStudy",
    "Budget",
    "Campaign",
    "Choice",
    "Config",
    "Direction",
    "Fidelity",
    "Flag",
    "Goal",
    "Grid",
    "Infeasible",
    "Measurement",
    "Objective",
    "Outcome",
    "Proposal",
    "Space",
    "Status",
    "Study",
    "Task",
    "Trial",
    "__version__",
    "create_study",
    "load_study",
    "maximize",
    "minimize",
    "optimize",
    "read_space",
    "tune",
]
