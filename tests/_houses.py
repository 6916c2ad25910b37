"""Which plug-ins a house of this repository brings; its suites run over those."""

from __future__ import annotations

from autoscout.core import plugins


def own(kind: str, house: str) -> list[str]:
    """Names of the plug-ins of a kind that a package brings: autoscout, autosched or autoscout_lab."""
    return [name for name in plugins.available(kind) if plugins.home(kind, name) == house]
