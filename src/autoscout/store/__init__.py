"""What happened, kept: one module per store."""
