"""A service that keeps the settings of a live scheduler tuned, within bounds that its operator sets."""
