"""What the training and the serving simulator read alike from a task: numbers, the model, the GPUs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from autoscout.catalog.gpus import MOST_RATE, Cluster, cluster
from autoscout.catalog.models import ModelShape, model, model_from
from autoscout.core.errors import ConfigError, Fault

_WORDS: dict[str, float] = {
    **dict.fromkeys(("", "none", "disabled", "false", "off", "no", "n/a", "no_shard"), 0.0),
    **dict.fromkeys(("true", "on", "yes", "full", "uniform", "block", "every_layer", "enabled", "full_recompute", "optim"), 1.0),
    "half": 0.5,
    **dict.fromkeys(("shard_grad_op", "optim_grads"), 2.0),
    **dict.fromkeys(("full_shard", "optim_grads_params", "hybrid_shard", "fsdp", "fsdp2"), 3.0),
}
"""Words that engines use for switches and for stages of sharding."""


def number(value: Any) -> float:
    """A knob's value as a number; words for on and off are understood, any other word is on.

    >>> number("every_layer"), number(True), number("4")
    (1.0, 1.0, 4.0)
    """
    if value is not None and not isinstance(value, (str, bool, int, float, np.number, np.bool_)):
        raise ConfigError(Fault(where="task", value=repr(value), rule="must be a number, or a word for on or off"))
    if isinstance(value, str):
        word = value.strip().lower()
        if word in _WORDS:
            return _WORDS[word]
        try:
            return float(word)
        except ValueError:
            return 1.0
    try:
        return float(value) if value is not None else 0.0
    except OverflowError:
        return math.inf


def first_given(facts: Mapping[str, Any], *names: str) -> Any:
    """The value under the first of `names` that is set; None when none is."""
    return next((facts[name] for name in names if facts.get(name) not in (None, "")), None)


def read_model(description: Any) -> ModelShape:
    """A model by name, by the path of its config.json, or by its shape."""
    if isinstance(description, ModelShape):
        return description
    if isinstance(description, Mapping):
        return model_from(description)
    if isinstance(description, str):
        return model(description)
    rule = "name a model, a config.json, or give its shape"
    raise ConfigError(Fault(where="task", field="workload.model", value=repr(description), rule=rule))


def read_cluster(facts: Mapping[str, Any], count: int | None = None) -> Cluster:
    """GPUs as `gpus` or `kinds: 8xA100-80+4xA40`, or as a count in `gpus` (`count` when it is not set) and a kind in `gpu`."""
    counted, kind = facts.get("kinds") or facts.get("gpus") or count, facts.get("gpu")
    if isinstance(counted, str) and not counted.strip().isdecimal():
        text = counted
    elif kind and (isinstance(counted, str) or type(counted) is int or (isinstance(counted, float) and counted.is_integer())):
        text = f"{counted:.0f}x{str(kind).split(',')[0]}" if isinstance(counted, float) else f"{counted}x{str(kind).split(',')[0]}"
    else:
        rule = "say which GPUs: gpus: 8xA100-80, or gpus: 8 and gpu: A100-80"
        raise ConfigError(Fault(where="task", field="hardware.gpus", value=repr(counted), rule=rule))
    return cluster(
        text,
        str(facts["hardware_file"]) if facts.get("hardware_file") else None,
        node_gpus=int(_rate(facts, "node_gpus", "gpus_per_node")),
        nic_gbps=_rate(facts, "nic_gbps"),
        scaleup_gbps=_rate(facts, "scaleup_gbps"),
    )


def _rate(facts: Mapping[str, Any], *names: str) -> float:
    value = first_given(facts, *names)
    if not 0 <= number(value) <= MOST_RATE:
        raise ConfigError(
            Fault(where="task", field=f"hardware.{names[0]}", value=repr(value), rule=f"must be a number from 0 to {MOST_RATE:g}")
        )
    return number(value)


__all__ = ["first_given", "number", "read_cluster", "read_model"]
