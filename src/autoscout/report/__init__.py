"""What was found: tables, curves, importance, hand-over."""
