"""The guide's example runs and prints what the guide says it prints."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

GUIDE = Path(__file__).parents[3] / "docs" / "reference" / "report.md"


def test_the_example_of_the_guide(tmp_path: Path) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    program = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    expected = re.search(r"```text\n(.*?)```", text, re.DOTALL)
    assert program
    assert expected
    environment = {"TMPDIR": str(tmp_path), "PYTHONUTF8": "1"}
    done = subprocess.run([sys.executable, "-c", program[1]], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.splitlines()[0] == expected[1].strip()
    assert done.stdout.splitlines()[-1] == "['best', 'report.html', 'summary.csv']"
