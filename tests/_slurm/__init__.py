"""A small real Slurm on this machine, for tests: several nodes with made-up GPUs, all in one folder, all gone at the end."""

from _slurm.cluster import SlurmCluster, missing

__all__ = ["SlurmCluster", "missing"]
