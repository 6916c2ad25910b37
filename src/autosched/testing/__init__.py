"""Conformance suites for the plug-ins of this package."""
