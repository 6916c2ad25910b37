"""Trials on the machines of a hostfile, reached through ssh."""

from autoscout.execute.hosts.executor import HostsExecutor

__all__ = ["HostsExecutor"]
