"""Which store keeps a study: chosen by the scheme of its URL, a SQLite file where there is none."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from autoscout.core import plugins
from autoscout.core.errors import ConfigError, Fault, PluginError
from autoscout.core.protocols import Store

MEMORY = "memory:"
FILE = "sqlite"  # the scheme of a plain path


def open_store(place: str | os.PathLike[str], *, create: bool = True, journal: Path | None = None) -> Store:
    """The store at a place.

    Args:
        place: A URL whose scheme a store plug-in declares (`postgresql://user@host/database`, `memory:`), or the path of a SQLite file.
        create: Whether a store that does not exist is begun, or refused with `StoreError`.
        journal: The `trials.jsonl` that receives one line per trial; None for none.

    Raises:
        ConfigError: no store plug-in knows the scheme.
        StoreError: it cannot be opened.
    """
    made: Store = _kind(str(place))(place, create=create, journal=journal)
    return made


def _kind(place: str) -> Any:
    found = re.match(r"([A-Za-z][\w.-]+)(?:\+[\w.-]+)?:", place)  # one letter is a drive of Windows; +psycopg names a driver
    scheme = found[1].lower() if found else FILE
    known: list[str] = []
    for name in plugins.available("store"):
        try:
            kind = plugins.get("store", name)
        except PluginError:
            continue  # its packages are not installed
        if scheme in kind.schemes:
            return kind
        known += kind.schemes
    rule = f"no store knows the scheme {scheme!r}; known: {', '.join(sorted(known))}"
    raise ConfigError(Fault(where="store", value=without_password(place), rule=rule, fix="Give a path, or install the store's package"))


def without_password(url: str) -> str:
    """A store's URL as it may be written down; the driver finds the password in PGPASSWORD or ~/.pgpass."""
    return re.sub(r"(://[^:@/?#]*):[^@/?#]*@", r"\1@", re.sub(r"([?&])password=[^&#]*&?", r"\1", url)).rstrip("?&")


def written_place(place: str) -> str:
    """A store or folder as a campaign file may name it: the same from any folder, without a password."""
    return without_password(place) if "://" in place or place == MEMORY else str(Path(place).absolute())
