"""The tables, their version, and the way from older versions to this one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlalchemy import (
    Column,
    Connection,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    insert,
    inspect,
    select,
    text,
    update,
)

from autoscout.core.errors import Fault, StoreError
from autoscout.core.log import logger

log = logger(__name__)

VERSION = 3

metadata = MetaData()

schema = Table("autoscout_schema", metadata, Column("version", Integer, nullable=False))

studies = Table(
    "autoscout_studies",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(200), nullable=False, unique=True),
    Column("task", Text, nullable=False),  # JSON
    Column("space", Text, nullable=False),
    Column("spec", Text, nullable=False),  # JSON
    Column("created_s", Double, nullable=False),
)

trials = Table(
    "autoscout_trials",
    metadata,
    Column("study_id", ForeignKey(studies.c.id), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("batch", Integer, nullable=False),
    Column("config", String(64), nullable=False),  # digest of the canonical form
    Column("repeat", Integer, nullable=False),
    Column("data", Text, nullable=False),  # the line of trials.jsonl
    Column("fidelity", String(16), nullable=False, server_default="measured"),
    Column("status", String(16), nullable=False, server_default="ok"),
    Index("autoscout_trials_identity", "study_id", "config", "fidelity", "repeat", unique=True),
    Index("autoscout_trials_batch", "study_id", "batch"),
)

claims = Table(
    "autoscout_claims",
    metadata,
    Column("study_id", ForeignKey(studies.c.id), primary_key=True),
    Column("config", String(64), primary_key=True),
    Column("repeat", Integer, primary_key=True),
    Column("worker", Text, nullable=False),
    Column("until_s", Double, nullable=False),
)

actions = Table(
    "autoscout_actions",
    metadata,
    Column("study_id", ForeignKey(studies.c.id), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("data", Text, nullable=False),  # JSON, without the answer
    Column("answer", Text, nullable=False),
)


damaged_trials = Table(
    "autoscout_damaged",
    MetaData(),  # made where it is needed
    Column("study_id", Integer, nullable=False),
    Column("number", Integer, nullable=False),
    Column("data", Text, nullable=False),  # as it was found
)


@dataclass(frozen=True, eq=False, kw_only=True)
class Tables:
    """A set of tables with a version of its own; several sets may live in one database.

    Attributes:
        metadata: The tables as they are now.
        schema: The one of them that holds the version.
        version: The newest that this AutoScout knows.
        migrations: Version -> the step to the next one.
    """

    metadata: MetaData
    schema: Table
    version: int
    migrations: Mapping[int, Callable[[Connection], None]]

    def prepare(self, connection: Connection, location: str) -> None:
        """Bring the database of a write transaction to this version; creates what is not there.

        Safe when several processes do it at once: the transaction is the only one that writes until it ends.
        """
        name = self.schema.name
        if connection.dialect.name == "postgresql":
            connection.execute(text(f"SELECT pg_advisory_xact_lock(hashtext('{name}'))"))
        if not inspect(connection).has_table(name):
            self.metadata.create_all(connection)
            connection.execute(insert(self.schema).values(version=self.version))
            return
        if connection.dialect.name == "postgresql":
            connection.execute(text(f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE"))  # waits for writers of the old version
        version = self.check_version(connection, location)
        while version < self.version:
            log.info("%s: migrating the store from schema version %d to %d", location, version, version + 1)
            self.migrations[version](connection)
            version += 1
            connection.execute(update(self.schema).values(version=version))

    def are_in(self, connection: Connection, location: str) -> bool:
        """Whether the database has these tables, in this version or an older one; refuses newer ones."""
        return inspect(connection).has_table(self.schema.name) and self.check_version(connection, location) >= 1

    def is_current(self, connection: Connection, location: str) -> bool:
        """Whether the database has this version's tables; refuses newer ones."""
        return inspect(connection).has_table(self.schema.name) and self.check_version(connection, location) == self.version

    def check_version(self, connection: Connection, location: str) -> int:
        """The version of the database; refuses tables that another process has migrated beyond ours."""
        version = connection.execute(select(self.schema.c.version)).scalar()
        if not isinstance(version, int) or not 1 <= version <= self.version:
            newer = isinstance(version, int) and version > self.version
            rule = f"this AutoScout knows stores up to schema version {self.version}"
            fix = (
                "It was written by a newer one: pip install --upgrade autoscout"
                if newer
                else "Give another store; this one was not made by AutoScout"
            )
            raise StoreError(Fault(where=location, field="schema version", value=str(version), rule=rule, fix=fix))
        return version


def _one_to_two(connection: Connection) -> None:
    """Version 1 knew one trial per configuration and repeat; now each fidelity may have its own, and claims name the repeat.

    Statements are spelled out: a migration must keep doing the same when the tables above change again.
    """
    for column, default in (("fidelity", "measured"), ("status", "ok")):
        connection.execute(text(f"ALTER TABLE autoscout_trials ADD COLUMN {column} VARCHAR(16) DEFAULT '{default}' NOT NULL"))
    rows = connection.execute(text("SELECT study_id, number, data FROM autoscout_trials")).all()
    change = text("UPDATE autoscout_trials SET fidelity = :fidelity, status = :status WHERE study_id = :study AND number = :number")
    for study, number, line in rows:
        data = json.loads(line)
        connection.execute(
            change, {"study": study, "number": number, "fidelity": data.get("fidelity", "measured"), "status": data["status"]}
        )
    connection.execute(text("DROP INDEX autoscout_trials_identity"))
    connection.execute(text("CREATE UNIQUE INDEX autoscout_trials_identity ON autoscout_trials (study_id, config, fidelity, repeat)"))
    # Claims are reservations, not results: whoever held one writes into the old tables and will be refused.
    connection.execute(text("DROP TABLE autoscout_claims"))
    connection.execute(
        text(
            "CREATE TABLE autoscout_claims (study_id INTEGER NOT NULL REFERENCES autoscout_studies (id), config VARCHAR(64) NOT NULL,"
            " repeat INTEGER NOT NULL, worker TEXT NOT NULL, until_s DOUBLE PRECISION NOT NULL, PRIMARY KEY (study_id, config, repeat))"
        )
    )


def _two_to_three(connection: Connection) -> None:
    """Version 2 knew no actions."""
    connection.execute(
        text(
            "CREATE TABLE autoscout_actions (study_id INTEGER NOT NULL REFERENCES autoscout_studies (id), number INTEGER NOT NULL,"
            " data TEXT NOT NULL, answer TEXT NOT NULL, PRIMARY KEY (study_id, number))"
        )
    )


_MIGRATIONS: dict[int, Callable[[Connection], None]] = {1: _one_to_two, 2: _two_to_three}
"""Version -> the step to the next one."""

STUDIES = Tables(metadata=metadata, schema=schema, version=VERSION, migrations=_MIGRATIONS)
"""What studies are kept in."""
