"""Conformance suites for every protocol, for plug-in authors and for our own tests."""
