"""What `hybrid` tries in turn once it has started: the first of these that has a proposal makes it."""

from autoscout.search.hybrid.proposers import acquisition, exhausted, stalled

PROPOSERS = (exhausted.propose, stalled.propose, acquisition.propose)

__all__ = ["PROPOSERS"]
