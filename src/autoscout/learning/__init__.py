"""Statistical models and bookkeeping that searchers and simulators share."""
