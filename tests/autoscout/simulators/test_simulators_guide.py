"""The Python examples of the pages on simulators run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"
PAGES = (DOCS / "guides" / "estimate.md", DOCS / "reference" / "simulators.md")
EXAMPLES = [code for page in PAGES for code in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)]


@pytest.mark.parametrize(("program", "words"), list(zip(EXAMPLES, ("s per step", "simulated"), strict=True)), ids=("estimate", "ensemble"))
def test_the_examples_of_the_guide(program: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(program, {})
    assert words in capsys.readouterr().out
