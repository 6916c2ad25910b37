"""The compiled heart of the simulator: event loops and placement over plain arrays."""
