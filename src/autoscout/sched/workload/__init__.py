"""Workloads that were never recorded: synthetic traces."""
