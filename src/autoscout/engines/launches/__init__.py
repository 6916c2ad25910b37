"""What people run today, read: commands, scripts, Compose files, manifests, recipes and files of flags of an engine."""

from autoscout.engines.launches.reader import read_launch

__all__ = ["read_launch"]
