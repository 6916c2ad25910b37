"""Runs the command line in this process or as a program of its own, and writes small campaigns for it."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from autoscout.cli.main import main

PROGRAM = [sys.executable, "-c", "from autoscout.cli.main import main; main()"]


def run(here: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """The command in this process, in a folder. Signals, kills and broken pipes need a program of their own: `PROGRAM`."""
    out, errors = io.StringIO(), io.StringIO()
    words = [str(argument) for argument in arguments]
    code: Any = 0
    with contextlib.chdir(here), contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            main(words)
        except SystemExit as ended:
            code = ended.code
    return subprocess.CompletedProcess(words, int(code or 0), out.getvalue(), errors.getvalue())


SUM = """\
import sys
x, y = int(sys.argv[1]), int(sys.argv[2])
print("score", (x - 3) ** 2 + (y - 1) ** 2 + 1)
"""


def campaign(folder: Path, script: str = SUM, **changes: Any) -> Path:
    """A campaign over two whole numbers whose best point is x=3, y=1, scored by a real little program."""
    (folder / "program.py").write_text(script)
    data: dict[str, Any] = {
        "system": "command",
        "name": "numbers",
        "workload": {
            "command": f"{sys.executable} {folder / 'program.py'} {{x}} {{y}}",
            "metrics": {"score": {"regex": "score ([0-9.]+)"}},
        },
        "goal": {"metric": "score", "direction": "minimize"},
        "budget": {"trials": 6},
        "measure": {"dirty_repeats": 0},
        "finals": {"finalists": 1, "rounds": 3},
        "space": {"knobs": {"x": {"range": [0, 5], "default": 0}, "y": {"range": [0, 3], "default": 0}}},
    }
    for name, value in changes.items():
        data[name] = {**data[name], **value} if isinstance(data.get(name), dict) and isinstance(value, dict) and name != "space" else value
    path = folder / "campaign.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    return path
