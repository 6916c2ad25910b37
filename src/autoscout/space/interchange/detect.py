"""Which foreign format is this?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autoscout.common.templates import flatten
from autoscout.core.config import Value
from autoscout.space.interchange.configspace_import import read_configspace
from autoscout.space.interchange.deepspeed import read_tuning_space
from autoscout.space.interchange.vllm_sweep import read_sweep
from autoscout.space.space import Space

_OURS = {"knobs", "space", "search_space"}


def read_foreign(path: Path, content: Any, facts: Mapping[str, Value] | None = None) -> Space | None:
    """The space of a ConfigSpace, vLLM sweep or DeepSpeed-style JSON file; None when it is none of them.

    A list is a sweep; a mapping with `hyperparameters` is ConfigSpace; a mapping of mappings without any list is a
    sweep with names; one with lists is a tuning space.
    """
    if isinstance(content, list):
        return read_sweep(path)
    if not isinstance(content, Mapping) or set(content) & _OURS:
        return None
    if "hyperparameters" in content:
        return read_configspace(path)
    if any(isinstance(leaf, list) for leaf in flatten(content).values()):
        return read_tuning_space(path, facts)
    if content and all(isinstance(point, Mapping) for point in content.values()):
        return read_sweep(path)
    return None
