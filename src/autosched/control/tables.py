"""The tables of the controller: job events, decisions, the audit log, and what was seen of the cluster."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Double, Index, Integer, MetaData, String, Table, Text

from autosched.events import MOST_NAME
from autoscout.store.sql.schema import Tables

_metadata = MetaData()
_schema = Table("autoscout_control_schema", _metadata, Column("version", Integer, nullable=False))

events = Table(
    "autoscout_job_events",
    _metadata,
    Column("cluster", String(MOST_NAME), primary_key=True),
    Column("job", String(MOST_NAME), primary_key=True),
    Column("kind", String(16), primary_key=True),
    Column("at_s", Double, primary_key=True),
    Column("hour", BigInteger, nullable=False),  # of at_s, counted from the epoch
    Column("data", Text, nullable=False),  # JSON: attributes of the job that this event tells
    Index("autoscout_job_events_hour", "cluster", "hour"),
)

decisions = Table(
    "autoscout_decisions",
    _metadata,
    Column("id", Integer, primary_key=True),
    Column("cluster", String(MOST_NAME), nullable=False),
    Column("at_s", Double, nullable=False),
    Column("state", String(16), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("data", Text, nullable=False),  # JSON: the rest of `Entry`
    Index("autoscout_decisions_state", "cluster", "state"),
    Index("autoscout_decisions_time", "cluster", "at_s"),
)

audit = Table(
    "autoscout_audit",
    _metadata,
    Column("id", Integer, primary_key=True),
    Column("cluster", String(MOST_NAME), nullable=False),
    Column("at_s", Double, nullable=False),
    Column("decision", Integer),
    Column("event", String(32), nullable=False),
    Column("words", Text, nullable=False),
    Index("autoscout_audit_time", "cluster", "at_s"),
)

samples = Table(
    "autoscout_cluster_samples",
    _metadata,
    Column("cluster", String(MOST_NAME), primary_key=True),
    Column("at_s", Double, primary_key=True),
    Column("data", Text, nullable=False),  # JSON: load, waiting, running, settings; simulated where it is
)

CONTROL = Tables(metadata=_metadata, schema=_schema, version=1, migrations={})
"""What a controller keeps; may share a database with studies."""
