"""Spaces of backends, built once for each task."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from autoscout.core.task import Task

if TYPE_CHECKING:
    from autoscout.core.protocols import Backend, SpaceLike

B = TypeVar("B", bound="Backend")
S = TypeVar("S", bound="SpaceLike")


def once_per_task(build: Callable[[B, Task], S]) -> Callable[[B, Task], S]:
    """For the method `space` of a backend: each task's space is built once, since that takes longer than rendering a launch."""

    @functools.wraps(build)
    def space(backend: B, task: Task) -> S:
        spaces: dict[str, S] = vars(backend).setdefault("_spaces_by_task", {})
        key = task.key
        if key not in spaces:
            spaces[key] = build(backend, task)
        return spaces[key]

    return space


__all__ = ["once_per_task"]
