"""Which variables and settings of a launch are secrets: their values are kept nowhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

SECRET = re.compile(r"TOKEN(?!S|IZ)|SECRET|PASSWORD|PASSWD|API_?KEY|CREDENTIAL|ACCESS_KEY|PRIVATE_KEY", re.IGNORECASE)
"""In the name of a variable with a secret. Tokens in the plural are counted, by models."""
SECRET_VALUE = re.compile(r"\bhf_\w{8}|\bsk-\w{8}|://[^/\s:@]+:[^/\s@]+@")
"""In a value: a token, or a password in an address."""


def is_secret(name: str, value: str) -> bool:
    """Whether a variable or a setting holds a secret."""
    return bool(SECRET.search(name) or SECRET_VALUE.search(value))


def holds_secret(value: Any) -> bool:
    """Whether a value is a secret, or has one inside, as a JSON value may."""
    if isinstance(value, Mapping):
        return any((isinstance(below, str) and is_secret(str(name), below)) or holds_secret(below) for name, below in value.items())
    if isinstance(value, list):
        return any(map(holds_secret, value))
    return isinstance(value, str) and is_secret("", value)


def left_out(names: list[str]) -> str:
    """What is said of variables with secrets."""
    whose, them = ("its value is", "it") if len(names) == 1 else ("their values are", "them")
    return f"{' and '.join(names)}: {whose} kept nowhere. Set {them} in the shell that starts AutoScout if the engine needs {them}."


__all__ = ["holds_secret", "is_secret", "left_out"]
