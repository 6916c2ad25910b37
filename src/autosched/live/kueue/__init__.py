"""Kueue: ClusterQueue, LocalQueue and the manager's configuration, as patches."""

from autosched.live.kueue.live import Kueue

__all__ = ["Kueue"]
