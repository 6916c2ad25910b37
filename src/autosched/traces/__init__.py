"""Jobs read from files: what all trace formats share, and Slurm's queue as a snapshot."""
