"""The guide's Python really runs, in order."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest

GUIDES = Path(__file__).resolve().parents[2] / "docs" / "guides"
GUIDE = GUIDES / "schedulers.md"


@pytest.mark.parametrize(("name", "count"), [("schedulers", 2), ("scheduler-sessions", 1)])
def test_python_of_the_guides(name: str, count: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("guide")
    monkeypatch.setitem(sys.modules, "guide", module)  # dataclasses look their module up
    blocks = re.findall(r"```python\n(.*?)```", (GUIDES / f"{name}.md").read_text(encoding="utf-8"), re.S)
    assert len(blocks) == count
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), module.__dict__)
    assert len(capsys.readouterr().out.splitlines()) == count


def test_every_scheduler_is_in_the_guide() -> None:
    from autoscout.core import plugins

    text = GUIDE.read_text(encoding="utf-8")
    assert [name for name in plugins.available("scheduler") if f"| `{name}` |" not in text] == []
