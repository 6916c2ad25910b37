"""Loggers: the library logs, only the front end decides where it goes."""

from __future__ import annotations

import logging


def logger(name: str) -> logging.Logger:
    """The logger of a module; call it with `__name__`. No handler is ever configured here."""
    return logging.getLogger(name)


NOTICES = "autoscout.notices"
"""Logger of what a person who waits should read at once; `autoscout tune` shows it."""


logging.getLogger("autoscout").addHandler(logging.NullHandler())
