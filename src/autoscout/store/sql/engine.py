"""From what a person writes (a path, a URL) to a database engine with the settings that durability needs."""

from __future__ import annotations

import os
import re
import sqlite3
import weakref
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import Pool

from autoscout.core.clock import RealClock
from autoscout.core.errors import Fault, PluginError, StoreError
from autoscout.store.sql.errors import translate_os

BUSY_S = 60.0  # how long to wait for other processes' write transactions, which take milliseconds
CONNECT_S = 10

WRITES = {"autoscout_writes": True}
"""Execution option of connections whose transactions write."""


def locate(target: str | os.PathLike[str]) -> URL:
    """The database URL of a path or URL.

    Raises:
        StoreError: neither a path nor a URL of a database that AutoScout can use.
    """
    if not isinstance(target, str) or "://" not in target:
        return URL.create("sqlite", database=str(Path(target).absolute()))
    try:
        url = make_url(target)
    except (ArgumentError, ValueError) as error:
        raise _wrong_url(target, "this is not a database URL") from error
    if url.get_backend_name() == "sqlite":
        if url.database in (None, "", ":memory:"):
            raise _wrong_url(target, "a SQLite store needs a file; to keep nothing use the memory store")
        return URL.create("sqlite", database=str(Path(str(url.database)).absolute()))
    if url.drivername in ("postgres", "postgresql", "postgresql+psycopg"):
        if not url.database:
            raise _wrong_url(target, "the URL names no database")
        return url.set(drivername="postgresql+psycopg")
    raise _wrong_url(target, f"{url.drivername!r} is not supported: a store is a SQLite file or a PostgreSQL database")


def connect(url: URL, create: bool) -> Engine:
    """An engine for the URL; no connection is made yet.

    Raises:
        StoreError: the path cannot hold a store.
        PluginError: the PostgreSQL driver is not installed.
    """
    engine = _sqlite(Path(str(url.database)), create) if url.get_backend_name() == "sqlite" else _postgres(url)
    _engines.add(engine)
    return engine


def _sqlite(path: Path, create: bool) -> Engine:
    where = str(path)
    if not path.exists() and not create:
        raise StoreError(Fault(where=where, rule="there is no store here", fix="Give the folder of a study that was begun"))
    if path.is_dir():
        raise StoreError(Fault(where=where, rule="a store is a file, this is a folder", fix=f"Give {path / 'store.db'}"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise translate_os(error, str(path.parent)) from error
    if create:
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))  # it holds the values of variables
        except FileExistsError:
            pass
        except OSError as error:
            raise translate_os(error, where) from error
    url = URL.create("sqlite", database=where)
    if not create and _is_archive(path):
        url = URL.create("sqlite", database=f"file:{quote(where)}", query={"immutable": "1", "uri": "true"})
    engine = create_engine(url, max_overflow=-1)
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _is_archive(path: Path) -> bool:
    """Whether a store can only be read: SQLite opens it then without the two files that it keeps next to one in use."""
    writable = os.access(path.parent, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
    return not writable and not path.with_name(f"{path.name}-wal").exists()


def _set_up_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    connection.isolation_level = None  # `_begin_sqlite` begins transactions, not the driver
    connection.execute(f"PRAGMA busy_timeout = {int(BUSY_S * 1000)}")
    clock = RealClock()
    deadline_s = clock.span_s() + BUSY_S
    while True:
        try:
            # Switching a new file to WAL does not wait for other processes that do the same: SQLite answers "busy" at once.
            connection.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname != "SQLITE_BUSY" or clock.span_s() > deadline_s:
                raise
            clock.sleep(0.02)
    # With NORMAL, a WAL commit returns before it is on the disk and a power cut takes it back. FULL waits for the disk:
    # about a millisecond, next to trials of seconds.
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that begins as a reader and then writes cannot wait for another writer, it fails; so writers say so.
    writes = connection.get_execution_options().get("autoscout_writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _postgres(url: URL) -> Engine:
    settings: dict[str, Any] = {
        "connect_timeout": CONNECT_S,
        "application_name": "autoscout",
        "keepalives_idle": 30,  # or a vanished server is noticed after two hours
        "tcp_user_timeout": 60_000,
        "prepare_threshold": None,  # prepared statements do not survive connection poolers
    }
    try:
        return create_engine(
            url,
            connect_args={name: value for name, value in settings.items() if name not in url.query},
            pool_pre_ping=True,
            pool_size=2,
            max_overflow=14,
            pool_timeout=BUSY_S,
        )
    except ImportError as error:
        raise PluginError(
            Fault(
                where=url.render_as_string(),
                rule=f"a PostgreSQL store needs a driver that is not installed ({error})",
                fix="pip install 'autoscout[postgres]'",
            )
        ) from error


def _wrong_url(target: str, rule: str) -> StoreError:
    url = re.sub(r"(://[^/@]*:)[^/]*@", r"\1***@", target)  # never a password in a message
    return StoreError(Fault(where="store", value=url, rule=rule, fix="Example: postgresql://user@host/database, or a path like store.db"))


_engines: weakref.WeakSet[Engine] = weakref.WeakSet()
_inherited: list[Pool] = []


def _after_fork() -> None:
    """Connections must not be used by two processes, nor closed by the wrong one: the child keeps the old ones untouched and unused."""
    for engine in list(_engines):
        _inherited.append(engine.pool)
        engine.dispose(close=False)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
