"""Which foreign format is this?"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from autoscout.common.templates import flatten
from autoscout.core.config import Value
from autoscout.space.interchange.deepspeed import read_tuning_space
from autoscout.space.interchange.vllm_sweep import read_sweep
from autoscout.space.space import Space

GROUP = "autoscout.interchange"
"""Entry points of this group read files of further tools; each is named like the key that only such files have."""

_OURS = {"knobs", "space", "search_space"}


def read_foreign(path: Path, content: Any, facts: Mapping[str, Value] | None = None) -> Space | None:
    """The space of a JSON file of another tool; None when it is none that is known.

    A list is a vLLM sweep; a mapping with the key of an installed reader (`hyperparameters`: ConfigSpace) is that reader's; a mapping
    of mappings without any list is a sweep with names; one with lists is a DeepSpeed-style tuning space.
    """
    if isinstance(content, list):
        return read_sweep(path)
    if not isinstance(content, Mapping) or set(content) & _OURS:
        return None
    for point in entry_points(group=GROUP):
        if point.name in content:
            space: Space = point.load()(path)
            return space
    if any(isinstance(leaf, list) for leaf in flatten(content).values()):
        return read_tuning_space(path, facts)
    if content and all(isinstance(point, Mapping) for point in content.values()):
        return read_sweep(path)
    return None
