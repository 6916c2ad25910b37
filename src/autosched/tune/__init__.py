"""Settings of a scheduler that follow what a cluster does: futures, search, causal model, the closed loop and what it is compared with."""
