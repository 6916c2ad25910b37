"""What a server does when nobody sets anything: the row that every other configuration has to beat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autoscout.core import plugins
from autoscout.core.config import Value
from autoscout.core.errors import ConfigError
from autoscout.core.task import Task
from autoscout.engines.table import table_for
from autoscout.estimate.pins import SERVING_NAMES
from autoscout.simulators.serving.read import KNOBS

LAUNCHED = ("vllm", "sglang")
"""Systems with a backend: their defaults are known, and predicted configurations can be written as files."""
BATCHING = ("max_requests", "max_step_tokens")


def engine_default(task: Task) -> dict[str, Value]:
    """The engine's own values of what estimates compare, by their names; empty where no backend knows them.

    A model that is too large for one GPU is spread over as few as hold it.
    """
    model = task.workload.get("model")
    if task.system not in LAUNCHED or not isinstance(model, str):
        return {}
    backend: Any = plugins.get("backend", task.system)()
    newest = table_for(task.system, "").version
    try:
        read = backend.task({"workload": {"model": model}, "hardware": task.hardware, "software": {task.system: newest}})
    except ConfigError:  # a load or a machine that the backend would refuse can be predicted all the same
        return {}
    config: Mapping[str, Value] = backend.space(read).default()
    named = {field: next((config[name] for name in KNOBS[field] if config.get(name)), None) for field in ("tp", "dp", *BATCHING)}
    return {SERVING_NAMES[field]: value for field, value in named.items() if value is not None}


__all__ = ["LAUNCHED", "engine_default"]
