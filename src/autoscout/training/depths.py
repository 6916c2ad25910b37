"""A deep model from two shallow ones: what a step takes grows by the same amount with every layer. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

VARIABLE = "AUTOSCOUT_DEPTH"
"""Layers that a process of the built-in model builds, instead of the model's own."""

GROWING = ("step_ms", "peak_mem_gib")


def extrapolated(results: Sequence[Mapping[str, Any]], depths: Sequence[int], layers: int) -> dict[str, Any]:
    """The result of `layers` layers, from results at two depths: value = first + (layers - first depth) * growth per layer.

    The loss is left out: shallow models learn something else.

    Args:
        results: As `trial.summary` gives them, one for each depth.
        depths: Layers of each, ascending.
        layers: Of the whole model.
    """
    shallow, deep = results
    metrics: dict[str, float] = {}
    for name in GROWING:
        low, high = shallow["metrics"][name], deep["metrics"][name]
        growth = max(0.0, (high - low) / (depths[1] - depths[0]))  # noise must not make layers take less than nothing
        metrics[name] = high + (layers - depths[1]) * growth
    if "free_mem_gib" in deep["metrics"]:
        used = metrics["peak_mem_gib"] - deep["metrics"]["peak_mem_gib"]
        metrics["free_mem_gib"] = max(0.0, deep["metrics"]["free_mem_gib"] - used)
    for name in ("tokens", "samples"):
        rate = f"{name}_per_s"
        if rate in deep["metrics"]:
            metrics[rate] = deep["metrics"][rate] * deep["metrics"]["step_ms"] / metrics["step_ms"]
    spent = {name: shallow["spent"][name] + deep["spent"][name] for name in deep["spent"]}
    return {**deep, "metrics": metrics, "samples": {}, "losses": [], "spent": spent}
