"""The guide's own examples run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autoscout_lab.cli import app

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "lab" / "benchmark.md").read_text()


def test_the_python_example(tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", GUIDE, flags=re.DOTALL)
    done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "coordinate" in done.stdout


def test_the_command_about_good_and_bad_configurations(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "lab" / "spread.md").read_text(encoding="utf-8")
    line = next(line for line in guide.splitlines() if line.startswith("$ autoscout bench spread"))
    *words, folder = shlex.split(line)[2:]
    assert folder == "spread"
    outcome = CliRunner().invoke(app, [*words[1:], str(tmp_path / folder)], catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    assert "torch_decoding: 4 of 912 configurations of the table are within 10% of the best found" in outcome.output
    assert outcome.output.count(" changed ") > 10
    assert (tmp_path / folder / "spread.html").read_text(encoding="utf-8").count("<svg") == 2


@pytest.mark.slow
def test_the_first_command() -> None:
    line = next(line for line in GUIDE.splitlines() if line.startswith("$ autoscout bench search --tables benchmarks"))
    words = shlex.split(line)[2:]
    program = [sys.executable, "-c", "from autoscout.cli.main import main; main()", *words]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "evolution" in done.stdout
