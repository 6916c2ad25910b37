"""Text without passwords and tokens, for pages, reports and messages. Finds what is written as a secret; it cannot find others."""

from __future__ import annotations

import re

HIDDEN = "***"
"""Stands where a secret was."""

_RULES = (
    # variables: HF_TOKEN=..., export OPENAI_API_KEY='...'
    re.compile(r"""(\b[A-Z][A-Z0-9_]*(?:TOKEN|_KEY|SECRET|PASSWORD|PASSWD|CREDENTIALS)=)('[^']*'|"[^"]*"|[^\s'"]+)"""),
    # flags: --api-key X, --token=X
    re.compile(r"(--(?:api[-_]key|hf[-_]token|auth[-_]token|access[-_]token|token|password|secret)[= ])('[^']*'|\"[^\"]*\"|[^\s'\"]+)"),
    re.compile(r"(://[^\s:/@]*:)([^\s@/]+)(?=@)"),  # a URL with a password
    re.compile(r"(?i)(\bbearer )([\w.~+/=-]{8,})"),
    re.compile(r"()(\b(?:hf|sk|ghp|gho|glpat|xox[bp])[-_][A-Za-z0-9_-]{16,})"),  # tokens that say whose they are
)


def hide_secrets(text: str) -> str:
    """The text with `***` in the place of every secret that can be told."""
    for rule in _RULES:
        text = rule.sub(rf"\g<1>{HIDDEN}", text)
    return text


__all__ = ["HIDDEN", "hide_secrets"]
