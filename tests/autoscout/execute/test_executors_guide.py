"""The example of docs/reference/executors.md runs as it is."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

GUIDE = Path(__file__).parents[3] / "docs" / "reference" / "executors.md"


def test_from_python() -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True)
    assert done.stdout.split() == ["42", "True", "True"], done.stderr
