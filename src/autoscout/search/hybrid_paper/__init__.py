"""The search of the AutoScout paper, step by step."""

from autoscout.search.hybrid_paper.searcher import HybridPaperSearcher

__all__ = ["HybridPaperSearcher"]
