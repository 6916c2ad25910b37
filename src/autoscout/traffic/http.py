"""Reading an address, within bounds: size, time, and no other schemes than http and https."""

from __future__ import annotations

import urllib.error
import urllib.request
from urllib.parse import urlsplit, urlunsplit

from autoscout.core.errors import ConfigError, Fault

LIMIT_S = 20.0
MOST_BYTES = 32 * 2**20
SCHEMES = ("http", "https")


def is_address(text: str) -> bool:
    """Whether this is an address that is read over the network."""
    return urlsplit(text).scheme.lower() in SCHEMES


def without_secrets(address: str) -> str:
    """The address without user, password and query, for messages and descriptions."""
    parts = urlsplit(address)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def get(address: str, limit_s: float = LIMIT_S) -> str:
    """The text at an address.

    Raises:
        ConfigError: nobody answers, or not with text.
    """
    url = without_secrets(address)
    local = (urlsplit(address).hostname or "") in ("127.0.0.1", "localhost", "::1")
    handlers = [urllib.request.ProxyHandler({})] if local else []  # a local server is reached whatever proxies the user has
    try:
        with urllib.request.build_opener(*handlers).open(address, timeout=limit_s) as answer:
            raw = answer.read(MOST_BYTES + 1)
    except urllib.error.HTTPError as error:
        body = error.read(500).decode(errors="replace").strip().partition("\n")[0]
        raise ConfigError(Fault(where=url, rule=f"answered with status {error.code}", value=body, fix="Check the address")) from error
    except (urllib.error.URLError, OSError, ValueError) as error:
        why = getattr(error, "reason", None) or error
        raise ConfigError(Fault(where=url, rule=f"cannot be reached: {why}", fix="Check the address, and that the server is up")) from error
    if len(raw) > MOST_BYTES:
        raise ConfigError(Fault(where=url, rule=f"answered with more than {MOST_BYTES // 2**20} MiB"))
    try:
        text: str = raw.decode("utf-8")
        return text
    except UnicodeDecodeError as error:
        raise ConfigError(Fault(where=url, rule="did not answer with text")) from error


__all__ = ["get", "is_address", "without_secrets"]
