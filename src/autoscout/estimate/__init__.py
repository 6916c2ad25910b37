"""What to expect before anything runs: the best layouts by prediction."""
