"""Two processes on one study: they share the work, lose nothing and measure nothing twice."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from _cli_program import PROGRAM, campaign

SCRIPT = """\
import sys, time
time.sleep(0.1)
print("score", int(sys.argv[1]) + int(sys.argv[2]) + 1)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_two_processes_share_one_study(tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> None:
    space = {"knobs": {"x": {"range": [0, 99], "default": 50}, "y": {"range": [0, 9], "default": 5}}}
    path = campaign(tmp_path, script=SCRIPT, space=space, budget={"trials": 24}, finals={"finalists": 1, "rounds": 3})
    where = [] if kind == "sqlite" else ["--store", str(request.getfixturevalue("postgres_url"))]
    # With a shared database every process may keep a result folder of its own.
    folders = ["a", "a"] if kind == "sqlite" else ["a", "b"]
    commands = [[*PROGRAM, "tune", str(path), *where, "-o", folder, "--json"] for folder in folders]
    started = [subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for command in commands]
    ended = [program.communicate(timeout=240) for program in started]
    for program, (_, said) in zip(started, ended, strict=True):
        assert program.returncode == 0, said
    results = [json.loads(told) for told, _ in ended]
    lines = [json.loads(line) for line in (tmp_path / "a" / "numbers" / "trials.jsonl").read_text().splitlines()]
    identities = [(json.dumps(line["config"], sort_keys=True), line["repeat"]) for line in lines]
    assert len(set(identities)) == len(identities)
    assert [line["number"] for line in lines] == list(range(len(lines)))
    workers = {line["worker"] for line in lines if line["origin"].get("phase") != "final"}
    assert len(workers) == 2, "one of the two did all the work"
    assert 24 <= sum(line["repeat"] == 0 for line in lines) <= 25
    assert {result["verdict"] for result in results} == {"gain"}
