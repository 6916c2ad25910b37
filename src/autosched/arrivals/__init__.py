"""Future arrivals, generated from past ones."""
