"""Real systems: one module per engine."""
