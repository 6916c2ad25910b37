"""From the file of a controller to a controller."""

from __future__ import annotations

from typing import Any

from autosched.control.controller import Controller
from autosched.control.settings import Settings
from autosched.live_scheduler import LiveScheduler
from autoscout.common.text import suggestion
from autoscout.core import plugins
from autoscout.core.errors import ConfigError, Fault


def live_scheduler(block: dict[str, Any]) -> LiveScheduler:
    """The live scheduler that the block `live` of a file describes.

    Raises:
        ConfigError: there is no such kind, or its options are wrong; all faults at once.
        PluginError: the kind cannot be used here.
    """
    kind, names = str(block.get("kind", "")), plugins.available("live")
    if kind not in names:
        fix = suggestion(kind, names) or f"There are {', '.join(names)}"
        raise ConfigError(Fault(where="live", field="kind", value=kind, rule="there is no such live scheduler", fix=fix))
    live: LiveScheduler = plugins.get("live", kind)({key: value for key, value in block.items() if key != "kind"})
    return live


def controller(settings: Settings) -> Controller:
    """A controller that has not looked at its cluster yet."""
    return Controller(settings, live_scheduler(settings.live))
