"""How long unfinished jobs still run."""
