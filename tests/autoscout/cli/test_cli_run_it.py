"""The commands that a page offers to copy run as they are."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from _cli_program import campaign, run

WITH_FILES = """\
import json, sys
settings = json.load(open(sys.argv[1]))
print("score", len(settings["mode"]) + settings["x"])
"""
SHELL = f'autoscout() {{ {sys.executable} -m autoscout "$@"; }}\n'


def copied(here: Path) -> dict[str, str]:
    """What each button of the page copies, by the title in front of it."""
    page = (here / "autoscout_results" / "numbers" / "report.html").read_text()
    blocks = re.findall(r'<div class="command"><p[^>]*>(.*?)<button.*?<pre[^>]*>(.*?)</pre>', page, re.DOTALL)
    return {title: html.unescape(text) for title, text in blocks}


def printed(here: Path, line: str) -> str:
    return subprocess.run(["sh", "-c", SHELL + line], cwd=here, capture_output=True, text=True, check=True, timeout=120).stdout


def test_a_program_with_files_of_its_own(tmp_path: Path) -> None:
    workload = {
        "command": f"{sys.executable} {tmp_path / 'program.py'} {{folder}}/settings.json",
        "files": {"settings.json": '{"mode": "{mode}", "x": {x}}'},
    }
    knobs = {"mode": {"values": ["on", "off", "a: it's {1}"], "default": "a: it's {1}"}, "x": {"range": [0, 3], "default": 3}}
    assert run(tmp_path, "tune", campaign(tmp_path, WITH_FILES, workload=workload, space={"knobs": knobs})).returncode == 0
    commands = copied(tmp_path)
    assert set(commands) == {"the answer", "the default", "the best"}
    assert re.search(r"score\W+14\b", printed(tmp_path, commands["the default"]))
    assert re.search(r"score\W+2\b", printed(tmp_path, commands["the best"]))
    assert "score 2" in printed(tmp_path, commands["the answer"])


def test_a_program_with_arguments(tmp_path: Path) -> None:
    assert run(tmp_path, "tune", campaign(tmp_path, budget={"trials": 24})).returncode == 0
    commands = copied(tmp_path)
    assert "score 11" in printed(tmp_path, commands["the default"])
    assert "score 1\n" in printed(tmp_path, commands["the best"])
    assert "score 1\n" in printed(tmp_path, commands["the answer"])


def test_a_program_that_is_run_several_times(tmp_path: Path) -> None:
    assert run(tmp_path, "tune", campaign(tmp_path, workload={"repeats": 2}, budget={"trials": 24})).returncode == 0
    commands = copied(tmp_path)
    assert re.search(r"score\W+11\b", printed(tmp_path, commands["the default"]))
    assert re.search(r"score\W+1\b", printed(tmp_path, commands["the best"]))


def test_machine_versions_and_load_are_kept_with_the_study_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(tmp_path, "tune", campaign(tmp_path)).returncode == 0
    shown = json.loads(run(tmp_path, "report", "--json").stdout)["machine"]
    assert {"processor", "cores", "memory", "kernel", "load average", "python", "autoscout"} == set(shown)
    monkeypatch.setattr("autoscout.study.about.describe_machine", lambda: {"processor": "another"})
    again = run(tmp_path, "report", "--json")
    assert json.loads(again.stdout)["machine"] == shown, "it is that of the study, not of the reader"
    page = html.unescape((tmp_path / "autoscout_results" / "numbers" / "report.html").read_text())
    assert all(value in page for value in shown.values())
