"""Spaces from and for ConfigSpace. Everything here works on files; ConfigSpace need not be installed."""

from autoscout_lab.configspace.read import read_configspace
from autoscout_lab.configspace.write import Export, write_configspace

__all__ = ["Export", "read_configspace", "write_configspace"]
