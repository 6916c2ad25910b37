"""The nouns and the seams. Imports nothing else of AutoScout."""
