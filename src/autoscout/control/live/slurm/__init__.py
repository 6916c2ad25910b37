"""Slurm: read with its own commands, changed through slurm.conf."""

from autoscout.control.live.slurm.live import Slurm

__all__ = ["Slurm"]
