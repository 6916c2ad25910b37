"""The guide names every scheduler."""

from __future__ import annotations

from pathlib import Path

from autoscout.core import plugins

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "autosched" / "simulate.md"


def test_every_scheduler_is_in_the_guide() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    assert [name for name in plugins.available("scheduler") if f"| `{name}` |" not in text] == []
