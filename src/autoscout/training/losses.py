"""Whether a run does what the default does: tokens and losses of the same steps on the same data, compared. Standard library only."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from autoscout.common import cache
from autoscout.common.files import write_whole

RISE = 1.5  # a loss this many times the first one has diverged, whatever the default did
FIRST = 3  # steps whose losses say what the run began with
SAME_WORK = 0.05  # relative distance between the tokens of two runs that count as the same work


@dataclass
class Reference:
    """What the default did: its losses and the tokens it trained on, by step."""

    losses: list[float] = field(default_factory=list)
    tokens: list[float] = field(default_factory=list)


def other_work(tokens: Sequence[float], reference: Sequence[float]) -> str:
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


def wrong(losses: Sequence[float | None], reference: Sequence[float], most: float) -> str:
    """Why these losses cannot be those of a run that trains as the default does; empty when they can.

    Args:
        losses: By step; None where a loss was not finite.
        reference: Those of the default, as far as they are known; may be empty.
        most: Largest relative distance from the reference, in the mean over the later half of the steps that both have.
    """
    broken = next((number for number, loss in enumerate(losses, start=1) if loss is None), None)
    if broken is not None:
        return f"the loss of step {broken} is not a finite number"
    known = [loss for loss in losses if loss is not None]
    if len(known) > FIRST and known[-1] > RISE * max(known[:FIRST]) > 0:
        return f"the loss rises from {known[0]:.4g} to {known[-1]:.4g} in {len(known)} steps"
    shared = min(len(known), len(reference))
    if not shared:
        return ""
    later = range(shared // 2, shared)
    ours, theirs = (statistics.fmean(values[number] for number in later) for values in (known, reference))
    gap = (ours - theirs) / abs(theirs) if theirs else 0.0
    if gap > most:
        return f"after {shared} steps the loss is {ours:.4g} where the default's is {theirs:.4g}, {gap:.1%} above it (at most {most:.1%})"
    return ""


def cache_folder() -> Path:
    """Where the losses of defaults are kept."""
    return cache.cache_folder("training")


def recall(key: str) -> Reference:
    """What the default of one task did; empty when nobody has trained it here."""
    try:
        found = json.loads((cache_folder() / f"losses-{key}.json").read_text())
        return Reference(*([float(value) for value in found[name]] for name in ("losses", "tokens")))
    except (OSError, ValueError, TypeError, KeyError):
        return Reference()


def remember(key: str, reference: Reference) -> None:
    """Keep what the default did, the last time counts: a script may have changed. A cache that cannot be written is no failure."""
    path = cache_folder() / f"losses-{key}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps({"losses": reference.losses, "tokens": reference.tokens}))
    except OSError:
        return
