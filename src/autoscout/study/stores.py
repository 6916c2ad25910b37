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


def open_store(url: str | os.PathLike[str], *, create: bool = True, journal: Path | None = None) -> Store:
    """The store at a path or URL.

    Args:
        url: A URL whose scheme a store plug-in declares (`postgresql://user@host/database`, `memory:`), or the path of a SQLite file.
        create: Whether a store that does not exist is begun, or refused with `StoreError`.
        journal: The `trials.jsonl` that receives one line per trial; None for none.

    Raises:
        ConfigError: no store plug-in knows the scheme.
        StoreError: it cannot be opened.
    """
    store: Store = _kind(str(url))(url, create=create, journal=journal)
    return store


def scheme_of(url: str) -> str:
    """The scheme of a store's URL, in lower case; empty for a path."""
    match = re.match(r"([A-Za-z][\w.-]+)(?:\+[\w.-]+)?:", url)  # one letter is a drive of Windows; +psycopg names a driver
    return match[1].lower() if match else ""


def stores_at(url: str) -> list[str]:
    """The stores at a path or URL that people name: a store, a result folder, or a folder of result folders."""
    if scheme_of(url):
        return [url]
    path = Path(url)
    if path.is_dir():
        here = path / STORE
        return [str(here)] if here.is_file() else sorted(map(str, path.glob(f"*/{STORE}")))
    return [url] if path.is_file() else []


def _kind(url: str) -> Any:
    scheme = scheme_of(url) or FILE
    names: list[str] = []
    for name in plugins.available("store"):
        try:
            kind = plugins.get("store", name)
        except PluginError:
            continue  # its packages are not installed
        if scheme in kind.schemes:
            return kind
        names += kind.schemes
    rule = f"no store knows the scheme {scheme!r}; known: {', '.join(sorted(names))}"
    raise ConfigError(Fault(where="store", value=without_password(url), rule=rule, fix="Give a path, or install the store's package"))


def without_password(url: str) -> str:
    """A store's URL as it may be written down; the driver finds the password in PGPASSWORD or ~/.pgpass."""
    return re.sub(r"(://[^:@/?#]*):[^@/?#]*@", r"\1@", re.sub(r"([?&])password=[^&#]*&?", r"\1", url)).rstrip("?&")


def written_place(url: str) -> str:
    """A store or folder as a campaign file may name it: the same from any folder, without a password."""
    if "://" in url:
        return without_password(url)
    scheme, _, path = url.partition(":") if scheme_of(url) else ("", "", url)
    if not scheme:
        return str(Path(url).absolute())
    return f"{scheme}:{Path(path).absolute()}" if path else url
