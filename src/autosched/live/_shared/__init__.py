"""What several live schedulers share."""
