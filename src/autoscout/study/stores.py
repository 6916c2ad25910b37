"""Which store keeps a study: chosen by the scheme of its URL, a SQLite file where there is none."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from autoscout.core import plugins
from autoscout.core.errors import ConfigError, Fault, PluginError
from autoscout.core.protocols import Store
from autoscout.study.folder import STORE

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


def scheme_of(place: str) -> str:
    """The scheme of a store's URL, in lower case; empty for a path."""
    found = re.match(r"([A-Za-z][\w.-]+)(?:\+[\w.-]+)?:", place)  # one letter is a drive of Windows; +psycopg names a driver
    return found[1].lower() if found else ""


def stores_at(place: str) -> list[str]:
    """The stores at a place that people name: a store, a result folder, or a folder of result folders."""
    if scheme_of(place):
        return [place]
    path = Path(place)
    if path.is_dir():
        here = path / STORE
        return [str(here)] if here.is_file() else sorted(map(str, path.glob(f"*/{STORE}")))
    return [place] if path.is_file() else []


def _kind(place: str) -> Any:
    scheme = scheme_of(place) or FILE
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
    if "://" in place:
        return without_password(place)
    scheme, _, path = place.partition(":") if scheme_of(place) else ("", "", place)
    if not scheme:
        return str(Path(place).absolute())
    return f"{scheme}:{Path(path).absolute()}" if path else place
