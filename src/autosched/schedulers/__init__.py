"""Schedulers, one file each. The file name is the name users type."""
