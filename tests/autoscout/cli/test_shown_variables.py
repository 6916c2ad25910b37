"""`render` and `--dry-run` name the variables of a workload; values stand in files that were asked for."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from _cli_program import campaign, run
from autoscout.core.secrecy import refer_to_variables

VALUE = "corporate proxy, floor 3"
SCRIPT = """\
import os, sys
x, y = int(sys.argv[1]), int(sys.argv[2])
assert os.environ["SITE"] == "corporate proxy, floor 3" and os.environ["TURNS"] == sys.argv[1]
print("score", (x - 3) ** 2 + (y - 1) ** 2 + 1)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = campaign(tmp_path, SCRIPT)
    data = yaml.safe_load(path.read_text())
    data["workload"]["env"] = {"SITE": VALUE, "TURNS": "{x}", "PLAN": "{{1: two}}"}
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    return path


@pytest.mark.parametrize(
    "words",
    [("render", "--set", "x=3"), ("render", "--json"), ("render", "--export", "-"), ("tune", "--dry-run"), ("tune", "--dry-run", "--json")],
)
def test_values_are_not_shown(file: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    verb, *flags = words
    done = run(tmp_path, verb, file, *flags)
    assert done.returncode == 0, done.stderr
    assert VALUE not in done.stdout + done.stderr
    assert "1: two" not in done.stdout + done.stderr
    assert "$SITE" in done.stdout


def test_a_line_that_is_copied_runs_where_the_variable_is_set(file: Path, tmp_path: Path) -> None:
    text = run(tmp_path, "render", file, "--set", "x=3").stdout
    line = text.partition("\n")[2]  # below the configuration
    assert "TURNS=3" in line, "what a knob sets is shown"
    line = line.replace("{folder}", str(tmp_path))
    shown = subprocess.run(["sh", "-c", line], env={**os.environ, "SITE": VALUE}, capture_output=True, text=True, check=False)
    assert shown.stdout.startswith("score "), shown.stderr


def test_the_report_names_variables_too(file: Path, tmp_path: Path) -> None:
    done = run(tmp_path, "tune", file)
    assert done.returncode == 0, done.stderr
    home = tmp_path / "autoscout_results" / "numbers"
    page = (home / "report.html").read_text()
    assert VALUE not in page + (home / "report.json").read_text() + done.stdout + done.stderr
    assert "SITE=&quot;$SITE&quot;" in page


def test_values_are_there_for_who_asks(file: Path, tmp_path: Path) -> None:
    shown = run(tmp_path, "render", file, "--show-env", "--json")
    assert json.loads(shown.stdout)["env"]["SITE"] == VALUE
    assert shlex.quote(VALUE) in run(tmp_path, "render", file, "--show-env").stdout
    run(tmp_path, "render", file, "--export", tmp_path / "scripts")
    assert any(VALUE in path.read_text() for path in (tmp_path / "scripts").iterdir())


def test_a_secret_stays_hidden_for_who_asks(file: Path, tmp_path: Path) -> None:
    data = yaml.safe_load(file.read_text())
    data["workload"]["env"]["HF_TOKEN"] = "not-like-one-at-all"
    file.write_text(yaml.safe_dump(data, sort_keys=False))
    assert "not-like-one-at-all" not in run(tmp_path, "render", file, "--show-env").stdout


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("SITE='a b' run a b", 'SITE="$SITE" run a b'),
        ('{"SITE": "a b", "text": "a b"}', '{"SITE": "$SITE", "text": "a b"}'),
        ("export SITE='a b'\n", 'export SITE="$SITE"\n'),
        ("SITE=a b\n", 'SITE="$SITE"\n'),
        ("SITE: a b\n", 'SITE: "$SITE"\n'),
        ("- name: SITE\n  value: a b\n", '- name: SITE\n  value: "$SITE"\n'),
        ("MY_SITE='a b' SITE='a bc'", "MY_SITE='a b' SITE='a bc'"),
    ],
)
def test_only_what_a_variable_is_set_to_is_replaced(text: str, shown: str) -> None:
    assert refer_to_variables(text, {"SITE": "a b", "HF_TOKEN": "$HF_TOKEN", "EMPTY": ""}) == shown
