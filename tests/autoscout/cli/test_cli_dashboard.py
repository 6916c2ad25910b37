"""`autoscout dashboard` as a program."""

from __future__ import annotations

import re
import signal
import subprocess
import urllib.request
from pathlib import Path

import pytest

from _cli_program import PROGRAM, run
from autoscout.store.sql.store import SqlStore
from autoscout.testing.store import record

for package in ("fastapi", "uvicorn"):
    pytest.importorskip(package, reason="the extra web is not installed")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere",), "no such folder or file"),
        ((".", "--host", "0.0.0.0"), "needs a token"),
        ((".", "--host", "256.1.1.1"), "needs a token"),
        ((".", "--token-file", "missing/folder/token"), "the token cannot be read"),
    ],
)
def test_what_cannot_be_served_is_refused(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    refused = run(tmp_path, "dashboard", *arguments)
    assert refused.returncode == 2
    assert said in refused.stderr


def test_it_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    with SqlStore(tmp_path / "store.db") as store:
        store.open(record())
    words = [*PROGRAM, "dashboard", str(tmp_path), "--port", "0", "--token-file", str(tmp_path / "token")]
    program = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    try:
        assert program.stderr is not None
        line = program.stderr.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert address, line
        assert (tmp_path / "token").read_text().strip() not in line
        with urllib.request.urlopen(f"{address[0]}/api/studies", timeout=20) as answer:
            assert b'"study"' in answer.read()
    finally:
        program.send_signal(signal.SIGINT)
        _, rest = program.communicate(timeout=30)
    assert program.returncode == 130
    assert "Traceback" not in rest
