"""Shell scripts, read as far as what they do is determined. Nothing is run."""
