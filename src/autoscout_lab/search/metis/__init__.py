"""Metis: memory-bounded enumeration of parallel plans, ordered by a cost model."""

from autoscout_lab.search.metis.searcher import MetisSearcher

__all__ = ["MetisSearcher"]
