"""What several trackers share."""
