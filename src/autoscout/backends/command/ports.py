"""The ports that a campaign fixes: they are leased, so that studies of one machine take turns instead of measuring each other."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

MOST_PORT = 2**16 - 1
LEAST_SHORT = 1024  # below it `-p N` hardly names a port
HERE = ("127.0.0.1", "localhost", "::1", "0.0.0.0", socket.gethostname())

_END = r"""(?=['"\s;&|/]|$)"""
_BEGIN = r"""(?:^|[\s'"])"""
_ADDRESS = r"(?:127\.0\.0\.1|localhost|0\.0\.0\.0|\[::1?\]|tcp://127\.0\.0\.1|tcp://localhost)?"
_OPTION = re.compile(rf"""{_BEGIN}--(?:[\w-]*[-_])?port(?:=|\s+)['"]?(\d{{1,5}}){_END}""")
_SHORT = re.compile(rf"""{_BEGIN}-p\s*['"]?(\d{{4,5}}){_END}""")
_VARIABLE = re.compile(rf"""(?:^|[\s'";&|])(?:[A-Z]\w*_)?PORT=['"]?(\d{{1,5}}){_END}""")
_BOUND = re.compile(rf"""(?:^|[\s'"=]){_ADDRESS}:(\d{{2,5}}){_END}""")
_MEETING = (
    re.compile(rf"""{_BEGIN}--(?:master|main[-_]process|nccl|rdzv|dist)[-_]port(?:=|\s+)['"]?(\d{{1,5}}){_END}"""),
    re.compile(
        rf"""{_BEGIN}--(?:rdzv[-_]endpoint|dist[-_]init[-_]addr|rdzv[-_]backend-endpoint)(?:=|\s+)['"]?{_ADDRESS}:(\d{{2,5}}){_END}"""
    ),
    re.compile(rf"""(?:^|[\s'";&|])(?:MASTER|RDZV|NCCL)_PORT=['"]?(\d{{1,5}}){_END}"""),
)


def meeting_ports(line: str, variables: Mapping[str, str] | None = None) -> set[int]:
    """Ports at which the processes of a training or of a server meet, by a command line and variables."""
    return _among((_MEETING), [line, *_assigned(variables)])


def served_ports(line: str, variables: Mapping[str, str] | None = None, url: str = "") -> set[int]:
    """Ports of this machine that a server takes: as its command, its variables and its health address name them.

    Of a command with the slot `{port}`, which is filled with a free one, only those at which its processes meet count: others may be of
    a database that it asks.
    """
    ports = meeting_ports(line, variables) | _of_url(url)
    if "{port}" in line:
        return ports
    short = {port for port in _among((_SHORT,), [line]) if port >= LEAST_SHORT}
    return ports | short | _among((_OPTION, _BOUND), [line]) | _among((_VARIABLE,), [line, *_assigned(variables)])


def line_of(command: Mapping[str, Any]) -> str:
    """A command of a plan as text."""
    return str(command["shell"]) if "shell" in command else " ".join(command["argv"])


def _assigned(variables: Mapping[str, str] | None) -> list[str]:
    return [f"{name}={value}" for name, value in (variables or {}).items()]


def _among(patterns: Iterable[re.Pattern[str]], lines: Iterable[str]) -> set[int]:
    named = {int(digits) for line in lines for pattern in patterns for digits in pattern.findall(line)}
    return {port for port in named if 0 < port <= MOST_PORT}


def _of_url(url: str) -> set[int]:
    """The port of this machine in a health address; none for a free one, and for other machines."""
    if not url or "{port}" in url:
        return set()
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return set()
    return {port} if port and parts.hostname in HERE else set()


__all__ = ["line_of", "meeting_ports", "served_ports"]
