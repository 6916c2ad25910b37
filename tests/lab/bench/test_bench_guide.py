"""The guide's own examples run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "lab" / "benchmark.md").read_text()


def test_the_python_example(tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", GUIDE, flags=re.DOTALL)
    done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "coordinate" in done.stdout


@pytest.mark.slow
def test_the_first_command() -> None:
    line = next(line for line in GUIDE.splitlines() if line.startswith("$ autoscout bench search --tables benchmarks"))
    words = shlex.split(line)[2:]
    program = [sys.executable, "-c", "from autoscout.cli.main import main; main()", *words]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "evolution" in done.stdout
