"""Trials on the machines of a Ray cluster, or on a Ray of our own on this one."""

from autoscout.execute.ray.executor import RayExecutor

__all__ = ["RayExecutor"]
