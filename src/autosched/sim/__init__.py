"""The simulator: traces, clusters, sessions, metrics."""
