"""What the default came to step by step, told to the program that measures another configuration, so that it can tell whether that does
the same work with the same result.

A backend names the samples (`Backend.curves`) that its `parse` keeps of every measurement. A study takes those of the default from its
store, so that resumed studies, other machines and other workers compare with the same ones, and hands them to each later launch as JSON in
the environment variable `AUTOSCOUT_CURVES`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from autoscout.core.launch import Launch
from autoscout.core.trial import Trial

VARIABLE = "AUTOSCOUT_CURVES"
DIGITS = 8  # of a value, more than any comparison needs

Curves = Mapping[str, tuple[float, ...]]
"""Values by step, by name."""


def curves_of(trials: Sequence[Trial], names: Sequence[str]) -> Curves:
    """Those of the longest of these measurements; empty where none has any."""
    samples = [
        {name: trial.measurement.samples[name] for name in names if name in trial.measurement.samples} for trial in trials if trial.ok
    ]
    return max(samples, key=lambda one: max(map(len, one.values()), default=0), default={})


def told_curves(launch: Launch, curves: Curves) -> Launch:
    """The launch with these in its environment."""
    data = {name: [float(f"{value:.{DIGITS}g}") for value in values] for name, values in curves.items()}
    return replace(launch, env={**launch.env, VARIABLE: json.dumps(data)})


def curves_here(environment: Mapping[str, str] | None = None) -> dict[str, list[float]]:
    """What this process was told; empty where nobody told it anything."""
    text = (os.environ if environment is None else environment).get(VARIABLE, "")
    return {str(name): [float(value) for value in values] for name, values in json.loads(text).items()} if text else {}


__all__ = ["VARIABLE", "Curves", "curves_here", "curves_of", "told_curves"]
