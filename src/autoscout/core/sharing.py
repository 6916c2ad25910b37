"""What a backend may offer besides its protocol: several configurations in one launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from autoscout.core.config import Config
from autoscout.core.launch import Completed, Launch
from autoscout.core.task import Task


@runtime_checkable
class SharesProcess(Protocol):
    """A backend that can measure several configurations in one launch, one after another, since starting takes longer than measuring.

    - `process_of(config, task)` is what a process cannot change once it runs: configurations with the same may share a launch. None
      where a configuration needs a launch of its own.
    - `render_together(configs, task, seed)` gives that launch; they are measured in this order.
    - `divide(completed, count)` gives for each configuration what a launch of its own would have come back with, for `parse`, its own
      share of the time included; None for those that the launch did not come to.
    """

    def process_of(self, config: Config, task: Task) -> Config | None: ...

    def render_together(self, configs: Sequence[Config], task: Task, seed: int) -> Launch: ...

    def divide(self, completed: Completed, count: int) -> list[Completed | None]: ...
