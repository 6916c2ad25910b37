"""Transactions on a database that may be shared, busy, full, or gone for a while."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

from autoscout.core.clock import RealClock
from autoscout.core.errors import Fault, StoreError
from autoscout.core.log import NOTICES, logger
from autoscout.store.sql.engine import WRITES, connect, locate
from autoscout.store.sql.errors import is_outage, translate, translate_os
from autoscout.store.sql.journal import sync_folder
from autoscout.store.sql.schema import STUDIES, Tables

log = logger(__name__)
notices = logger(NOTICES)

SILENCE_S = 15.0  # without an answer, after which the terminal says so
OUTAGE_S = 30.0  # how long to wait for a server that went away in the middle of a study

Answer = TypeVar("Answer")


class Database:
    """A database with the current tables. Every failure leaves it as a `StoreError`."""

    def __init__(self, target: str | os.PathLike[str], create: bool, tables: Tables = STUDIES) -> None:
        self._tables = tables
        url = locate(target)
        file = Path(str(url.database)) if url.get_backend_name() == "sqlite" else None
        new = file is not None and not file.exists()
        self.location = str(file) if file else url.render_as_string(hide_password=True)
        self._is_server = file is None
        self._closed = False
        self._gone = False  # the server did not come back in time: no second wait until it has answered again
        self._engine = connect(url, create)
        try:
            with self._announced():
                self._prepare()
            if file and new:
                sync_folder(file.parent)
        except BaseException as error:
            self._engine.dispose()
            if isinstance(error, (SQLAlchemyError, UnicodeDecodeError)):
                raise translate(error, self.location) from error
            if isinstance(error, OSError):
                raise translate_os(error, self.location) from error
            raise

    def read(self, work: Callable[[Connection], Answer]) -> Answer:
        """Do `work` in one transaction that changes nothing."""

        def attempt(_: bool) -> Answer:
            with self._engine.connect() as connection, connection.begin():
                return work(connection)

        return self._patiently(attempt)

    def write(self, work: Callable[[Connection, bool], Answer]) -> Answer:
        """Do `work` in one transaction, durable on return.

        Its second argument says whether an earlier attempt may have been committed without our hearing of it.
        """

        def attempt(again: bool) -> Answer:
            with self._engine.connect().execution_options(**WRITES) as connection, connection.begin():
                self._tables.check_version(connection, self.location)
                if connection.dialect.name == "postgresql":
                    # A server may be set to answer before the disk has the commit; not for us.
                    off = "current_setting('synchronous_commit') = 'off'"
                    connection.execute(text(f"SELECT set_config('synchronous_commit', 'on', true) WHERE {off}"))
                return work(connection, again)

        return self._patiently(attempt)

    def close(self) -> None:
        """Let go of all connections; nothing can be done afterwards."""
        self._closed = True
        self._engine.dispose()

    def _prepare(self) -> None:
        with self._engine.connect() as connection, connection.begin():
            current = self._tables.is_current(connection, self.location)
        if not current:
            with self._engine.connect().execution_options(**WRITES) as connection, connection.begin():
                self._tables.prepare(connection, self.location)

    @contextmanager
    def _announced(self) -> Iterator[None]:
        """Say that a server does not answer: whoever waits for it would otherwise see a study that does nothing."""
        if not self._is_server:
            yield
            return
        words = "%s: the database has not answered for %g s; waiting for it. Ctrl-C ends the study, what is stored is safe"
        timer = threading.Timer(SILENCE_S, lambda: notices.warning(words, self.location, SILENCE_S))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _patiently(self, attempt: Callable[[bool], Answer]) -> Answer:
        """Sit out a short outage of the server: a measured trial is worth waiting for."""
        if self._closed:
            raise StoreError(Fault(where=self.location, rule="this store was closed", fix="Open it again"))
        clock = RealClock()
        deadline_s: float | None = None  # begins when the outage is known: a cut network is silent for longer than we are patient
        wait_s, again = 0.1, False
        while True:
            try:
                with self._announced():
                    answer = attempt(again)
            except UnicodeDecodeError as error:
                raise translate(error, self.location) from error
            except SQLAlchemyError as error:
                outage = is_outage(error)
                if deadline_s is None:
                    deadline_s = clock.span_s() + (0.0 if self._gone else OUTAGE_S)
                if not outage or clock.span_s() + wait_s > deadline_s:
                    self._gone = outage
                    raise translate(error, self.location) from error
                if not again:
                    notices.warning("%s: the server went away, waiting up to %g s", self.location, OUTAGE_S)
                again = True
            else:
                self._gone = False
                return answer
            clock.sleep(wait_s)
            wait_s = min(2 * wait_s, 2.0)


def holds(target: str | os.PathLike[str], *tables: Tables) -> tuple[bool, ...]:
    """Whether a database has each of these tables; nothing is created.

    Raises:
        StoreError: it cannot be opened, or a newer AutoScout wrote them.
    """
    return peek(target, lambda connection, location: tuple(each.are_in(connection, location) for each in tables))


def peek(target: str | os.PathLike[str], work: Callable[[Connection, str], Answer]) -> Answer:
    """Look into a database once: whatever tables it has, they stay as they are, and no connection is kept.

    Args:
        target: Path of a SQLite file, or the URL of a server.
        work: Is given a connection, and what messages call the database.

    Raises:
        StoreError: it cannot be opened.
    """
    url = locate(target)
    location = url.render_as_string(hide_password=True)
    engine = connect(url, False)
    try:
        with engine.connect() as connection, connection.begin():
            return work(connection, location)
    except (SQLAlchemyError, UnicodeDecodeError) as error:
        raise translate(error, location) from error
    finally:
        engine.dispose()
