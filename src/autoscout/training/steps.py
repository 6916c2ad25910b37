"""What the steps of a training run say: how long one takes, whether more are needed, and whether the run learns as the default does.

Standard library only.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Z = 1.96  # half-width of a 95 % interval of a mean, in standard errors


@dataclass(frozen=True, kw_only=True)
class StepPlan:
    """How long to measure.

    Attributes:
        warm_up: Steps that never count: the first compiles, allocates and connects.
        least: Steps to measure after those.
        most: Steps after which measuring ends, settled or not.
        settled: Relative half-width of the 95 % interval of the mean step time below which measuring ends.
        enough_s: Seconds of measuring after which no further step is waited for, once there are `least`.
    """

    warm_up: int = 2
    least: int = 6
    most: int = 40
    settled: float = 0.03
    enough_s: float = 20.0

    @property
    def steps(self) -> int:
        """Steps of a run that never settles."""
        return self.warm_up + self.most


def warm_up_steps(durations: Sequence[float], least: int) -> int:
    """How many of the first steps to drop: the cut that leaves the mean of the rest best known, and at most half of them.

    This is the rule MSER of simulation output analysis: the cut d that minimises variance(rest) / number of the rest.

    Args:
        durations: Seconds of each step.
        least: Steps that are dropped in any case.
    """
    last = max(least, len(durations) // 2)
    cuts = [cut for cut in range(least, last + 1) if len(durations) - cut >= 2]
    if not cuts:
        return min(least, max(0, len(durations) - 1))
    return min(cuts, key=lambda cut: statistics.pvariance(durations[cut:]) / (len(durations) - cut))


def half_width(durations: Sequence[float]) -> float:
    """Relative half-width of the 95 % interval of the mean; infinite below three values."""
    if len(durations) < 3:
        return float("inf")
    mean = statistics.fmean(durations)
    return Z * statistics.stdev(durations) / len(durations) ** 0.5 / mean if mean > 0 else float("inf")


def has_enough_steps(durations: Sequence[float], plan: StepPlan) -> bool:
    """Whether the steps so far say what a step takes."""
    if len(durations) >= plan.steps:
        return True
    rest = durations[warm_up_steps(durations, plan.warm_up) :]
    if len(rest) < plan.least:
        return False
    return sum(durations[plan.warm_up :]) >= plan.enough_s or half_width(rest) <= plan.settled


PER_LAYER_METRICS = ("step_ms", "peak_mem_gib")


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
    for name in PER_LAYER_METRICS:
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
    spent = {name: sum(one["spent"].get(name, 0.0) for one in (shallow, deep)) for name in {**shallow["spent"], **deep["spent"]}}
    return {**deep, "metrics": metrics, "samples": {}, "curves": {"tokens": deep["curves"]["tokens"]}, "spent": spent}


DIVERGENCE_FACTOR = 1.5  # a loss this many times the first one has diverged, whatever the default did
FIRST_STEPS = 3  # steps whose losses say what the run began with
SAME_WORK = 0.05  # relative distance between the tokens of two runs that count as the same work


def work_fault(tokens: Sequence[float], reference: Sequence[float]) -> str:
    """Why a run does not do the default's work; empty when it does, or nobody counts tokens.

    Args:
        tokens: That all processes trained on, by step.
        reference: Those of the default.
    """
    shared = min(len(tokens), len(reference))
    ours, theirs = sum(tokens[:shared]), sum(reference[:shared])
    if not ours or not theirs or abs(ours / theirs - 1) <= SAME_WORK:
        return ""
    per_step, usual = ours / shared, theirs / shared
    return f"trains on {per_step:.0f} tokens a step where the default trains on {usual:.0f}: the global batch must stay the same"


def loss_fault(losses: Sequence[float | None], reference: Sequence[float], most: float, first: float) -> str:
    """Why these losses cannot be those of a run that trains as the default does; empty when they can.

    Args:
        losses: By step; None where a loss was not finite.
        reference: Those of the default, as far as they are known; may be empty.
        most: Largest relative distance above the reference, in the mean over the later half of the steps that both have.
        first: Largest relative distance of the first loss from the reference's, above or below: weights and data are the same.
    """
    broken = next((number for number, loss in enumerate(losses, start=1) if loss is None), None)
    if broken is not None:
        return f"the loss of step {broken} is not a finite number"
    finite = [loss for loss in losses if loss is not None]
    if len(finite) > FIRST_STEPS and finite[-1] > DIVERGENCE_FACTOR * max(finite[:FIRST_STEPS]) > 0:
        return f"the loss rises from {finite[0]:.4g} to {finite[-1]:.4g} in {len(finite)} steps"
    shared = min(len(finite), len(reference))
    if not shared:
        return ""
    away = abs(finite[0] - reference[0]) / abs(reference[0]) if reference[0] else 0.0
    if away > first:
        why = "the same weights on the same data have the same loss"
        return f"the first loss is {finite[0]:.4g} where the default's is {reference[0]:.4g}, {away:.1%} away (at most {first:.1%}): {why}"
    later = range(shared // 2, shared)
    ours, theirs = (statistics.fmean(values[number] for number in later) for values in (finite, reference))
    gap = (ours - theirs) / abs(theirs) if theirs else 0.0
    if gap > most:
        return f"after {shared} steps the loss is {ours:.4g} where the default's is {theirs:.4g}, {gap:.1%} above it (at most {most:.1%})"
    return ""
