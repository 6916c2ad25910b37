"""Volcano: the scheduler's config map and Queues, as patches."""

from autosched.live.volcano.live import Volcano

__all__ = ["Volcano"]
