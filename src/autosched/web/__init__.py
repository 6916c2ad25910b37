"""Controlled clusters in the dashboard."""
