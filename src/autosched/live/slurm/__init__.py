"""Slurm: read with its own commands, changed through slurm.conf."""

from autosched.live.slurm.live import LiveSlurm

__all__ = ["LiveSlurm"]
