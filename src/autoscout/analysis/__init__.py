"""What the trials show: pure functions over a task and its trials. Draws nothing."""
