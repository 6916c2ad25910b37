"""A process that owns the process tree of one launch, and its client."""
