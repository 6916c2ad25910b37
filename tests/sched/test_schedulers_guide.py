"""The guide's Python really runs, in order."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "schedulers.md"


def test_python_of_the_guide(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("guide")
    monkeypatch.setitem(sys.modules, "guide", module)  # dataclasses look their module up
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.S)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), module.__dict__)
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_every_scheduler_is_in_the_guide() -> None:
    from autoscout.core import plugins

    text = GUIDE.read_text(encoding="utf-8")
    assert [name for name in plugins.available("scheduler") if f"| `{name}` |" not in text] == []
