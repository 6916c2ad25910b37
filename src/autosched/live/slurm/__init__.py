"""Slurm: read with its own commands, changed through slurm.conf."""

from autosched.live.slurm.live import Slurm

__all__ = ["Slurm"]
