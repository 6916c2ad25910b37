"""Measurements behind the claims in the documentation; each module prints a table and, with --json, one JSON line."""
