"""Any command line, tuned through placeholders, environment variables or files."""

from autoscout.backends.command.backend import CommandBackend

__all__ = ["CommandBackend"]
