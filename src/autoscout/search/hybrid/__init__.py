"""Searcher `hybrid`."""

from autoscout.search.hybrid.searcher import HybridSearcher

__all__ = ["HybridSearcher"]
