"""What may be chosen: knobs, conditions, constraints."""
