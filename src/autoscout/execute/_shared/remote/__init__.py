"""Launches on other machines: an agent there, a channel to it here, and who gets which machine."""
