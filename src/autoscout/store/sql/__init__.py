"""Trials in SQLite or PostgreSQL."""

from autoscout.store.sql.store import SqlStore

__all__ = ["SqlStore"]
