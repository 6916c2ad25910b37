"""The laboratory: searchers and simulators of others, races between them, reference simulators."""
