"""Searchers of other tuners and papers, to compare with."""
