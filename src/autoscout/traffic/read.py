"""From a source, as users name it, to the traffic description."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autoscout.common import document
from autoscout.core.clock import Clock, RealClock
from autoscout.core.errors import ConfigError, Fault
from autoscout.traffic.description import MOST_WINDOWS, Traffic
from autoscout.traffic.sources import access_log, opentelemetry, prometheus, saved, scrape, table, weka
from autoscout.traffic.typical import mark_typical

FILES = (saved, opentelemetry, weka, scrape, table, access_log)
"""Sources in files; the first that takes a text reads it."""
SERVERS = (prometheus, scrape)
"""Sources that are asked over the network, likewise."""
LONGEST_S = 35 * 86_400.0  # that is looked back, or waited


def read_traffic(source: str | Mapping[str, Any], over_s: float = 0.0, windows: int = 0, clock: Clock | None = None) -> Traffic:
    """The traffic of a source.

    Args:
        source: An address, a file, or a description as plain data.
        over_s: How long a live page is read, or how far a Prometheus server is asked back.
        windows: How many to judge on; 0 for what suits the source.
        clock: Where time comes from.

    Raises:
        ConfigError: it cannot be read, or says too little.
    """
    if not 0 <= over_s <= LONGEST_S or not 0 <= windows <= MOST_WINDOWS:
        rule = f"must be from 0 to {LONGEST_S / 86_400:.0f} days, and --traffic-windows from 0 to {MOST_WINDOWS}"
        raise ConfigError(Fault(where="--traffic-over", value=f"{over_s:g} s, {windows} windows", rule=rule))
    traffic = Traffic.from_json(source) if isinstance(source, Mapping) else _read(source, over_s, clock or RealClock())
    return mark_typical(traffic, windows) if windows else traffic


def _read(source: str, over_s: float, clock: Clock) -> Traffic:
    for server in SERVERS:
        if server.takes_address(source):
            asked: Traffic = server.fetch(source, over_s, clock)
            return asked
    path = Path(source).expanduser()
    if not source.strip() or not path.is_file():
        rule = "is neither a file nor an address" if not path.is_dir() else "is a folder"
        fix = "Give a file, http://HOST:PORT/metrics, or prometheus:http://HOST:9090"
        raise ConfigError(Fault(where="--traffic", value=repr(source), rule=rule, fix=fix))
    if over_s:
        rule = "is for a live address: a file has its own time"
        raise ConfigError(Fault(where="--traffic-over", value=f"{over_s:g} s", rule=rule, fix="Leave it out"))
    text = document.read_text(path)
    first = _first(text)
    for kind in FILES:
        if kind.takes(text, first):
            traffic: Traffic = kind.read(path, text, 0)
            return traffic
    titles = "; ".join(kind.TITLE for kind in FILES)
    raise ConfigError(Fault(where=str(path), rule="is no traffic that can be read", fix=f"What can be: {titles}"))


def _first(text: str) -> Any:
    """The whole document where it is JSON, or else the first line that is."""
    start = text.lstrip("\ufeff \t\r\n")
    if not start.startswith("{"):
        return None
    line = next((line for line in start.splitlines() if line.strip()), "")
    for part in (line, text):
        try:
            return json.loads(part)
        except (ValueError, RecursionError):
            continue
    return None


__all__ = ["read_traffic"]
