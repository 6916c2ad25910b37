"""Whether a run learns what the default learns: losses of the same steps on the same data, compared. Standard library only."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Sequence
from pathlib import Path

from autoscout.backends._shared import cache

RISE = 1.5  # a loss this many times the first one has diverged, whatever the default did
FIRST = 3  # steps whose losses say what the run began with


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


def recall(key: str) -> list[float]:
    """The losses of the default of one task; empty when nobody has trained it here."""
    try:
        found = json.loads((cache_folder() / f"losses-{key}.json").read_text())
        return [float(loss) for loss in found]
    except (OSError, ValueError, TypeError):
        return []


def remember(key: str, losses: Sequence[float]) -> None:
    """Keep the losses of the default; a longer run replaces a shorter one. A cache that cannot be written is no failure."""
    if len(recall(key)) >= len(losses):
        return
    path = cache_folder() / f"losses-{key}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}.part")
        draft.write_text(json.dumps(list(losses)))
        draft.replace(path)
    except OSError:
        return
