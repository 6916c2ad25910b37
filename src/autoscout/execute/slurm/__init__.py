"""Trials as jobs of Slurm, or as steps of an allocation that the study holds."""

from autoscout.execute.slurm.executor import SlurmExecutor

__all__ = ["SlurmExecutor"]
