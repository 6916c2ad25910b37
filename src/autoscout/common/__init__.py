"""What several siblings share: statistics, models, drawing, processes. Imports `core` only."""
