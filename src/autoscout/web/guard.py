"""Who may see and do what: addresses, the token, sessions, forged requests, and what a page may load."""

from __future__ import annotations

import hmac
import ipaddress
import os
import secrets
import threading
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from autoscout.core.clock import Clock, RealClock
from autoscout.core.errors import ConfigError, Fault

TOKEN_VARIABLE = "AUTOSCOUT_TOKEN"
TOKEN_CHARS = 16
"""A token has at least these."""
SESSION_S = 12 * 3600.0
MOST_SESSIONS = 1_000
MOST_BODY = 64 * 1024
"""Bytes of a form or a JSON document that somebody sends."""
FAILED_PAUSE_S = 1.0  # between a wrong token and the answer

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; img-src 'self' data:; connect-src 'self';"
        " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # `no-referrer` would take the origin of our own forms away too
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
"""Sent with every answer: nothing but our own files is loaded, and nobody else may show a page in a frame."""


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine only."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def read_token(file: Path | None) -> str:
    """The token of a file, which is made where there is none, or of the environment; empty for none.

    Raises:
        ConfigError: the file cannot be read or written, others may read it, or the token is too short.
    """
    if file is None:
        token, where = os.environ.get(TOKEN_VARIABLE, "").strip(), TOKEN_VARIABLE
        if not token:
            return ""
    else:
        token, where = read_or_create_token(file), str(file)
    if len(token) < TOKEN_CHARS or not token.isprintable() or " " in token:
        rule, fix = f"a token has at least {TOKEN_CHARS} letters or digits", "Delete the file: the next start writes a new one"
        raise ConfigError(Fault(where=where, rule=rule, fix=fix))
    return token


def read_or_create_token(file: Path) -> str:
    """The token in a file that only its owner may read; a new one where there is no file."""
    try:
        if not file.exists():
            handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w") as stream:
                stream.write(secrets.token_urlsafe(24) + "\n")
        if file.stat().st_mode & 0o077:
            raise ConfigError(Fault(where=str(file), rule="others may read this token", fix=f"chmod 600 {file}"))
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(Fault(where=str(file), rule=f"the token cannot be read: {getattr(error, 'strerror', None) or error}")) from error


@dataclass(frozen=True, kw_only=True)
class Session:
    """Somebody who has shown the token: by a cookie (with `csrf` for forms), or with the request itself."""

    csrf: str
    until_s: float


@dataclass(kw_only=True)
class Sessions:
    """Those who have shown the token. Kept in memory: a restart of the dashboard ends them.

    Attributes:
        token: What they show.
        cookie: Name of their cookie. Each dashboard has its own: a browser sends cookies to all ports of a machine alike, and signing in
            to one dashboard must not sign out of another.
    """

    token: str
    clock: Clock = field(default_factory=RealClock)
    cookie: str = field(default_factory=lambda: f"autoscout_{secrets.token_hex(4)}")

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, Session] = {}

    def begin(self, token: str) -> str | None:
        """A new session for whoever knows the token; the value of its cookie. None for a wrong one."""
        if not self.token or not hmac.compare_digest(token.encode(), self.token.encode()):
            return None
        name = secrets.token_urlsafe(24)
        with self._lock:
            now_s = self.clock.span_s()
            self._open = {key: one for key, one in self._open.items() if one.until_s > now_s}
            while len(self._open) >= MOST_SESSIONS:
                self._open.pop(next(iter(self._open)))
            self._open[name] = Session(csrf=secrets.token_urlsafe(24), until_s=now_s + SESSION_S)
        return name

    def end(self, cookie: str) -> None:
        with self._lock:
            self._open.pop(cookie, None)

    def of_cookie(self, cookie: str) -> Session | None:
        session = self._open.get(cookie)
        return session if session is not None and session.until_s > self.clock.span_s() else None

    def of_bearer(self, header: str) -> Session | None:
        kind, _, token = header.partition(" ")
        right = self.token and kind.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), self.token.encode())
        return Session(csrf="", until_s=float("inf")) if right else None


@dataclass(kw_only=True)
class AccessGuard:
    """Stands in front of the application (ASGI).

    Attributes:
        app: What it guards.
        sessions: Who has shown the token.
        private: Whether reading needs the token too: on every address but this machine's own.
        hosts: Names by which a browser on this machine may call us; a page of somebody else whose name leads here has another.
    """

    app: Callable[[Scope, Receive, Send], Awaitable[None]]
    sessions: Sessions
    private: bool
    hosts: frozenset[str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        path, method = scope["path"], scope["method"]
        cookie = _cookie(headers.get("cookie", ""), self.sessions.cookie)
        session = self.sessions.of_bearer(headers.get("authorization", "")) or self.sessions.of_cookie(cookie)
        scope.setdefault("state", {}).update(session=session, cookie=cookie)
        send = _with_headers(send, path)
        refusal = self._refusal(headers, path, method, session)
        if refusal is not None:
            if refusal[0] == 401 and method == "GET" and not path.startswith("/api/"):
                await _answer(send, 303, refusal[1], headers=[(b"location", b"/login")])  # somebody's browser: show where to sign in
            else:
                await _answer(send, *refusal, wants_json=path.startswith("/api/"))
            return
        await self.app(scope, receive, send)

    def _refusal(self, headers: dict[str, str], path: str, method: str, session: Session | None) -> tuple[int, str] | None:
        """Status and reason for what is not allowed; None for what is."""
        if not self.private and _name(headers.get("host", "")) not in self.hosts:
            return 421, "This dashboard answers to the names of this machine only."
        length = headers.get("content-length", "").strip()
        if length and not (length.isascii() and length.isdigit()):
            return 400, "Content-Length must be a number."
        if len(length) > len(str(MOST_BODY)) or int(length or 0) > MOST_BODY:
            return 413, "What was sent is too long."
        changes = method not in ("GET", "HEAD")
        origin = _netloc(headers.get("origin", ""))
        if origin is None:
            return 400, "Origin must be an address."
        if changes and not _same_origin(headers, origin):
            return 403, "The request comes from another page."
        if path in ("/login", "/api/health") or path.startswith("/static/"):
            return None
        if session is None and (self.private or changes):
            return (
                401,
                "This needs the token: sign in first."
                if self.sessions.token
                else "This dashboard is read-only: it was started without a token.",
            )
        return None


def _name(host: str) -> str:
    """The name in a Host header, without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _netloc(address: str) -> str | None:
    """Host and port of an address; None for what is no address."""
    try:
        return urlsplit(address).netloc.lower()
    except ValueError:
        return None


def _same_origin(headers: dict[str, str], origin: str) -> bool:
    """Whether a request that changes something comes from our own page, or from a program (which sends no origin)."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    return "origin" not in headers or origin == headers.get("host", "").lower()


def _cookie(header: str, name: str) -> str:
    try:
        cookie = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return cookie.value if cookie is not None else ""


def _with_headers(send: Send, path: str) -> Send:
    async def sent(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            others = [(name, value) for name, value in message.get("headers", []) if name.lower() != b"server"]
            added = HEADERS | ({"cache-control": "no-cache"} if path.startswith("/static/") else {})
            message = {**message, "headers": [*others, *((name.encode(), value.encode()) for name, value in added.items())]}
        await send(message)

    return sent


async def _answer(send: Send, status: int, words: str, *, wants_json: bool = False, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
    body = f'{{"error": "{words}"}}' if wants_json else words
    kind = b"application/json" if wants_json else b"text/plain; charset=utf-8"
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind), *headers]})
    await send({"type": "http.response.body", "body": body.encode()})


__all__ = ["AccessGuard", "Sessions", "is_loopback", "read_token"]
