"""Learned simulators to compare with."""
