"""The guide's Python really runs, and it names every strategy."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from autosched.tune.modes import MODES

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "autosched" / "loop.md"


def test_python_of_the_guide(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    history = MODES["fixed-history"]
    predictor = replace(history.predictor, model="frequency")
    monkeypatch.setitem(MODES, "fixed-history", replace(history, start_trials=5, predictor=predictor))
    (block,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.S)
    exec(compile(block, str(GUIDE), "exec"), {})
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_every_strategy_is_in_the_guide() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    assert [name for name in MODES if f"| `{name}` |" not in text] == []
