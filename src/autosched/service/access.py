"""Who may call, and how often."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path

from autoscout.core.clock import Clock, RealClock
from autoscout.core.errors import ConfigError, Fault

ROLES = ("reader", "operator")
READING = frozenset({"Watch", "History", "Explain", "Health", "WhatIf"})
"""What a reader may call; an operator may call everything."""
MOST_CALLERS = 1_000  # whose rates are remembered
MIN_TOKEN_LENGTH = 16  # characters of a token
BURST_S = 2.0  # seconds of calls that may come at once


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Somebody who has shown a token."""

    name: str
    role: str

    def may(self, method: str) -> bool:
        return self.role == "operator" or method in READING


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """Digests of tokens, and whose they are; the tokens themselves are not kept."""

    digests: tuple[tuple[bytes, Caller], ...]

    @classmethod
    def read(cls, path: Path) -> Tokens:
        """Read a file of `NAME ROLE TOKEN` lines, which only its owner may read.

        Raises:
            ConfigError: all faults of the file at once; no token is repeated in a message.
        """
        try:
            text, mode = path.read_text(encoding="utf-8"), path.stat().st_mode
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(Fault(where=str(path), rule=f"cannot be read: {error}")) from error
        faults: list[Fault] = []
        if mode & 0o077:
            faults.append(Fault(where=str(path), rule="others may read it", fix=f"chmod 600 {path}"))
        callers: list[tuple[bytes, Caller]] = []
        for number, line in enumerate(text.splitlines(), start=1):
            parts = line.split("#")[0].split()
            if not parts:
                continue
            where = f"{path}:{number}"
            if len(parts) != 3 or parts[1] not in ROLES:
                faults.append(Fault(where=where, rule=f"must read NAME ROLE TOKEN, with a role of {' or '.join(ROLES)}"))
            elif len(parts[2]) < MIN_TOKEN_LENGTH:
                faults.append(Fault(where=where, rule=f"a token has at least {MIN_TOKEN_LENGTH} characters"))
            else:
                callers.append((_digest(parts[2]), Caller(name=parts[0], role=parts[1])))
        if not callers and not faults:
            faults.append(Fault(where=str(path), rule="there is no token in it"))
        if faults:
            raise ConfigError(faults)
        return cls(digests=tuple(callers))

    def caller(self, token: str) -> Caller | None:
        """Whose token it is; takes the same time whoever it is."""
        token_digest, match = _digest(token), None
        for digest, caller in self.digests:
            if hmac.compare_digest(token_digest, digest):
                match = caller
        return match


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()


@dataclass
class Rates:
    """Limits the rate of each caller: a token bucket per caller, of a bounded number of callers (the least recent is forgotten).

    Attributes:
        per_second: Calls.
    """

    per_second: float
    clock: Clock = field(default_factory=RealClock)
    _left: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def admit(self, name: str) -> bool:
        """Whether a call may come in now."""
        most = max(1.0, self.per_second * BURST_S)
        with self._lock:
            now_s = self.clock.span_s()
            tokens, at_s = self._left.pop(name, (most, now_s))
            tokens = min(most, tokens + (now_s - at_s) * self.per_second)
            admitted = tokens >= 1.0
            self._left[name] = (tokens - 1.0 if admitted else tokens, now_s)
            while len(self._left) > MOST_CALLERS:
                self._left.popitem(last=False)
            return admitted


def is_loopback(address: str) -> bool:
    """Whether an address `host:port` can be reached from this machine only."""
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return address.startswith("unix:")


def check_exposure(address: str, secured: bool, tokens: bool, where: str) -> None:
    """Refuse to be reachable from other machines without tokens and TLS.

    Raises:
        ConfigError: all that is missing at once.
    """
    if is_loopback(address):
        return
    missing: list[tuple[bool, str, str]] = [(tokens, "tokens", "a file of tokens"), (secured, "certificate", "TLS: certificate and key")]
    faults = [Fault(where=where, field=name, value=address, rule=f"other machines can reach this address, so it needs {what}")
              for there, name, what in missing if not there]  # fmt: skip
    if faults:
        raise ConfigError(faults)
