"""Exhaustive and staged search over small spaces."""

from autoscout.search.grid.searcher import GridSearcher

__all__ = ["GridSearcher"]
