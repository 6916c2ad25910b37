"""From the file of a controller to a controller."""

from __future__ import annotations

import importlib
from typing import Any

from autosched.control.controller import Controller
from autosched.control.settings import Settings
from autosched.protocol import LiveScheduler
from autoscout.common.text import suggestion
from autoscout.core.errors import ConfigError, Fault

LIVE = {
    "slurm": "autosched.live.slurm:Slurm",
    "kueue": "autosched.live.kueue:Kueue",
    "volcano": "autosched.live.volcano:Volcano",
    "replay": "autosched.live.replay:Replay",
}
"""Kind of live scheduler -> its class, imported when it is asked for."""


def live_scheduler(about: dict[str, Any]) -> LiveScheduler:
    """The live scheduler that the block `live` of a file describes.

    Raises:
        ConfigError: there is no such kind, or its options are wrong; all faults at once.
    """
    kind = str(about.get("kind", ""))
    if kind not in LIVE:
        fix = suggestion(kind, LIVE) or f"There are {', '.join(LIVE)}"
        raise ConfigError(Fault(where="live", field="kind", value=kind, rule="there is no such live scheduler", fix=fix))
    module, _, name = LIVE[kind].partition(":")
    built: LiveScheduler = getattr(importlib.import_module(module), name)({key: value for key, value in about.items() if key != "kind"})
    return built


def controller(settings: Settings) -> Controller:
    """A controller that has not looked at its cluster yet."""
    return Controller(settings, live_scheduler(settings.live))
