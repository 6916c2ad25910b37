"""Cluster schedulers as a library: traces, an exact and fast simulator, schedulers with knobs, metrics."""
