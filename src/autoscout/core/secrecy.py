"""What must not be shown: the one place that knows what a secret looks like. Everything shown passes through it.

Pages (`common/markup.py`), documents (`cli/options.py`, `web/responses.py`, `report/publish.py`), the terminal (`cli/options.py`),
`trials.jsonl` and what is kept of logs (`evaluate/profiler.py`) call it, so that no other code has to think of it.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

HIDDEN = "***"
"""Stands where a secret was."""

_WORDS = (
    r"passwords?|passwd|passphrase|secrets?|api[-_]?keys?|secret[-_]?(?:access[-_]?)?key|access[-_]?key(?:[-_]?id)?|private[-_]?key"
    r"|auth[-_]?key|account[-_]?key|credentials?|authorization"
    r"|(?:hf|hub|auth|access|api|bearer|refresh|session|id|github|gitlab|wandb|bot|hugging[-_]?face)[-_]?token"
)
"""What names of secrets end with, in any case. `token` alone is not among them: models count tokens."""
_NAME = re.compile(rf"(?:^|[\W_])(?:{_WORDS}|token|_key(?:_id)?)$", re.IGNORECASE)
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*_KEY(?:_ID)?$")
_REFERENCE = re.compile(r"\$(?:[A-Z_][A-Z0-9_]*|\{[A-Z_][A-Z0-9_]*(?::?[?+-][^}]*)?\}|\([A-Z_][A-Z0-9_]*\))")

_QUOTE = r"\\{0,3}['\"]"  # quotes are escaped where text holds text
_AFTER = rf"(?:{_QUOTE})?\s{{0,3}}(?:=>|[:=])\s{{0,3}}"
_OPEN = rf"(?!\*\*\*)(?!(?:{_QUOTE})?\$(?:[A-Z_]|\{{|\())"  # neither hidden already nor a reference to a variable
_VALUE = r"""(?:\\{0,3}'[^'\n]*'|\\{0,3}"[^"\n]*"|[^\s'",;&)}\]\\]+)"""
_RULES = (
    # Authorization: Basic dXNlcjpwYXNz
    re.compile(rf"(?i)(authorization{_AFTER}(?:{_QUOTE})?(?:basic|bearer|digest|token)\s+)([^\s'\"\\]+)"),
    # password=x, api_key: x, "api_key": "x", {{'AWS_SECRET_ACCESS_KEY': 'x'}}
    re.compile(rf"(?i)((?<![A-Za-z])(?:{_WORDS}){_AFTER}{_OPEN})(?!(?:basic|bearer|digest|token)\s)({_VALUE})"),
    # variables: HF_TOKEN=x, export SERVICE_KEY='x'
    re.compile(rf"(\b[A-Z][A-Z0-9_]{{0,60}}(?:TOKEN|_KEY|SECRET|PASSWORD|PASSWD|CREDENTIALS)(?:_ID)?{_AFTER}{_OPEN})({_VALUE})"),
    # flags: --api-key X, --token=X
    re.compile(rf"(?i)(--(?:[a-z0-9-]{{0,30}}-)?(?:{_WORDS}|token)(?:=|\s+){_OPEN})({_VALUE})"),
    re.compile(r"(['\"]token\\{0,3}['\"]\s{0,3}:\s{0,3}\\{0,3}['\"])([^\s'\"\\]{8,})"),  # "token": "x"
    re.compile(r"(?i)([?&](?:token|key|sig|signature|x-amz-signature)=)([^&\s'\"\\]+)"),  # a signed address
    re.compile(r"(://[^\s:/@'\"]*:)(?!\*\*\*@)(?!\$)([^\s/'\"]+)(?=@)"),  # a URL with a password
    re.compile(r"(?i)(\bbearer )([\w.~+/=-]{8,})"),
    re.compile(r"(\bBasic )((?=\S*(?:[\d=]|[a-z][A-Z]))[A-Za-z0-9+/]{8,}={0,2})"),
    # tokens that say whose they are
    re.compile(r"()(\b(?:hf|sk|ghp|gho|ghs|github_pat|glpat|nvapi|xox[abprs])[-_][A-Za-z0-9_-]{16,})"),
    re.compile(r"()(\b(?:AKIA|ASIA)[0-9A-Z]{12,}\b|\bAIza[\w-]{30,}|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"),
    re.compile(r"(-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----)([\s\S]*?)(?=-----END|\Z)"),
)
_HINT = re.compile(
    r"(?i)passw|passphrase|secret|key|credential|authorization|token|bearer|basic |://|[?&]sig|x-amz|\b(?:hf|sk|gh[pos]|glpat|nvapi|xox.)[-_]"
    r"|AKIA|ASIA|AIza|eyJ"
)
"""Without one of these no rule can apply: almost all text that is shown has none, and is done with after one look."""

_SHORTEST = 6
"""Characters of a known secret that is looked for in other text: shorter ones would blot out ordinary words."""


def hide_secrets(text: str, known: Iterable[str] = ()) -> str:
    """The text with `***` in the place of every secret that is written as one, and of those that are known; others cannot be found."""
    for secret in known:
        text = text.replace(secret, HIDDEN)
    if _HINT.search(text) is None:
        return text
    for rule in _RULES:
        text = rule.sub(rf"\g<1>{HIDDEN}", text)
    return text


def without_secrets(data: Any) -> Any:
    """Plain data as it may be shown: texts without secrets, what stands under the name of a secret hidden, and so all values of
    the variables of a workload."""
    return _shown(data, "")


def is_secret(name: str, value: str) -> bool:
    """Whether a variable holds a secret, by its name or by what it looks like; a reference to another variable is none."""
    if not value or _REFERENCE.fullmatch(value):
        return False
    return is_secret_name(name) or hide_secrets(value) != value


def holds_secret(data: Any) -> bool:
    """Whether plain data is a secret, or has one inside."""
    return bool(without_secrets(data) != data)


def is_secret_name(name: str) -> bool:
    """Whether what has this name is a secret."""
    return bool(_NAME.search(name) or _VARIABLE.fullmatch(name))


def known_secrets(variables: Mapping[str, object]) -> tuple[str, ...]:
    """Values of variables that must not be shown wherever they turn up, the longest first."""
    texts = {value for name, value in variables.items() if isinstance(value, str) and is_secret(name, value)}
    return tuple(sorted((text for text in texts if len(text) >= _SHORTEST), key=len, reverse=True))


def hide_variables(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Variables by name, none with its value; a reference says where a value comes from and stays."""
    return {hide_secrets(str(name)): _hidden(value) for name, value in variables.items()}


def refer_to_variables(text: str, variables: Mapping[str, str]) -> str:
    """The text with `"$NAME"` for the value wherever a variable is set to it: in a shell line, a list of variables, JSON or a manifest.

    What is copied from it runs where the variables are set.
    """
    for name, value in variables.items():
        if not value or _REFERENCE.fullmatch(value):
            continue
        forms = "|".join(re.escape(form) for form in dict.fromkeys([shlex.quote(value), json.dumps(value), f"'{value}'", value]))
        key = rf"(?<![\w$]){re.escape(name)}"
        set_to = rf"({key}=|{key}['\"]?:\s+|name['\"]?:\s*['\"]?{re.escape(name)}['\"]?,?\s+['\"]?value['\"]?:\s*)(?:{forms})(?![\w.])"
        text = re.sub(set_to, rf'\g<1>"${name}"', text)
    return text


def _shown(value: Any, inside: str) -> Any:
    if value.__class__ is str:
        return hide_secrets(value)
    if isinstance(value, Mapping):
        return {
            hide_secrets(name) if isinstance(name, str) else name: hide_variables(item)
            if name == "env" and inside == "workload" and isinstance(item, Mapping)
            else _hidden(item)
            if isinstance(item, str) and isinstance(name, str) and is_secret_name(name)
            else _shown(item, name if isinstance(name, str) else "")
            for name, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_shown(item, "") for item in value]
    return hide_secrets(str(value)) if isinstance(value, str) else value


def _hidden(value: Any) -> Any:
    return HIDDEN if value not in (None, "") and not (isinstance(value, str) and _REFERENCE.fullmatch(value)) else value


__all__ = [
    "HIDDEN",
    "hide_secrets",
    "hide_variables",
    "holds_secret",
    "is_secret",
    "is_secret_name",
    "known_secrets",
    "refer_to_variables",
    "without_secrets",
]
