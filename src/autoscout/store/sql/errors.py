"""The one border where errors of disks, drivers and servers become `StoreError`."""

from __future__ import annotations

import errno

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from autoscout.core.errors import Fault, StoreError

_SAFE = "every trial stored so far is safe"
_FULL = ("the disk is full", f"Free some space, then resume; {_SAFE}")
_REFUSED = ("the disk refused to read or write", f"Check free space, quotas, size limits (`ulimit -f`) and the disk, then resume; {_SAFE}")
_READ_ONLY = ("the store cannot be written: its file, folder or disk is read-only", "Make it writable or give another --output-dir")
_CORRUPT = (
    "the database file is damaged",
    "Move it away together with trials.jsonl, then bring the trials back from that trials.jsonl (docs/guides/store.md)",
)

_SQLITE = {
    "SQLITE_FULL": _FULL,
    "SQLITE_IOERR": _REFUSED,
    "SQLITE_READONLY": _READ_ONLY,
    "SQLITE_PERM": _READ_ONLY,
    "SQLITE_CANTOPEN": ("the database file cannot be opened", "Check that its folder exists and can be read and written"),
    "SQLITE_NOTADB": ("this file is not a SQLite database", "Give the path of a store, or of a file that does not exist yet"),
    "SQLITE_CORRUPT": _CORRUPT,
    "SQLITE_BUSY": ("another process has kept the store locked for too long", "Look for a stopped process that uses it, then resume"),
    "SQLITE_PROTOCOL": ("the file locks of this disk do not work", "Network disks are not enough for SQLite: use a postgresql:// store"),
}
"""Beginning of SQLite's own name of the error -> what it means to a person, what to do."""

_POSTGRES = {
    "53100": ("the server's disk is full", f"Free some space there, then resume; {_SAFE}"),
    "53": ("the server has no resources left", "Let it recover or raise its limits, then resume"),
    "28": ("the server refused the user or password", "Correct the URL or the server's pg_hba.conf"),
    "3D": ("there is no such database", "Create it (`createdb NAME`) or correct the URL"),
    "42501": ("the database user may not do this", "Grant it CREATE on the schema, or let an owner open the store once"),
    "25006": ("the server takes no writes", "Give the URL of the primary, not of a standby"),
    "57": ("the server is shutting down or was restarted", f"Start it again, then resume; {_SAFE}"),
    "40": ("the server gave up this transaction", "Resume; if it comes back, look into the server's log"),
    "22": ("the database cannot keep a value", "Please report this with the text in brackets"),
}
"""Beginning of the SQLSTATE, longest first match -> what it means, what to do."""

_NO_SERVER = ("the database server cannot be reached", f"Check host, port and that it runs, then resume; {_SAFE}")

_ERRNO = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: _REFUSED,
    errno.EIO: _REFUSED,
    errno.EROFS: _READ_ONLY,
    errno.EACCES: _READ_ONLY,
    errno.EPERM: _READ_ONLY,
}


def translate(error: SQLAlchemyError | UnicodeDecodeError, location: str) -> StoreError:
    """What a failure of database or driver means to a person."""
    if isinstance(error, UnicodeDecodeError):  # SQLite repeats bytes of a damaged file in its own message
        rule, fix = _CORRUPT
    elif isinstance(error, PoolTimeoutError):
        rule, fix = "too many threads use the store at once", "Open one store per process with fewer threads"
    elif isinstance(error, DBAPIError):
        rule, fix = _explain(error)
    else:
        rule, fix = "the database layer failed", "Please report this with the text in brackets"
    return StoreError(Fault(where=location, rule=rule, value=_first_line(error), fix=fix))


def translate_os(error: OSError, location: str) -> StoreError:
    """What a failure of the file system means to a person."""
    rule, fix = _ERRNO.get(error.errno or 0, ("the file cannot be used", "Check the path, then resume"))
    return StoreError(Fault(where=location, rule=rule, value=error.strerror or str(error), fix=fix))


def is_outage(error: SQLAlchemyError) -> bool:
    """Whether a server went away, which may be over soon."""
    if not isinstance(error, DBAPIError) or _sqlite_name(error):
        return False
    state = _state(error)
    return error.connection_invalidated or _is_unreachable(error, state) or state.startswith("57P")


def _is_unreachable(error: DBAPIError, state: str) -> bool:
    return state.startswith("08") or (not state and isinstance(error, (OperationalError, InterfaceError)))


def _explain(error: DBAPIError) -> tuple[str, str]:
    name = _sqlite_name(error)
    if name:
        texts = [text for beginning, text in _SQLITE.items() if name.startswith(beginning)]
        return texts[0] if texts else ("SQLite failed", "Please report this with the text in brackets")
    state = _state(error)
    for length in (5, 2):
        if state[:length] in _POSTGRES:
            return _POSTGRES[state[:length]]
    if error.connection_invalidated or _is_unreachable(error, state):
        return _NO_SERVER
    return "the database refused a statement", "Please report this with the text in brackets"


def _sqlite_name(error: DBAPIError) -> str:
    if type(error.orig).__module__ != "sqlite3":
        return ""
    return str(getattr(error.orig, "sqlite_errorname", "")) or "SQLITE_ERROR"


def _state(error: DBAPIError) -> str:
    state = str(getattr(error.orig, "sqlstate", "") or "")
    if not state and "password" in str(error.orig):
        return "28P01"  # while connecting, libpq gives the sentence but not the state
    if not state and "database" in str(error.orig) and "does not exist" in str(error.orig):
        return "3D000"
    return state


def _first_line(error: Exception) -> str:
    original = getattr(error, "orig", None) or error
    return " ".join(str(original).split())[:300]
