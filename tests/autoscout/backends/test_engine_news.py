"""The script that says when a newer wheel changes flags or defaults."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).parents[3] / "scripts"
sys.path.insert(0, str(SCRIPTS))

import engine_news  # noqa: E402 - a script, not a package

FIELDS = """
class Schedule:
    chunked_prefill_size: A[Optional[int], "Tokens in one step."] = 8192
    new_flag: A[bool, "Something new."] = False
"""


def wheel(folder: Path, fields: str) -> Path:
    path = folder / "sglang-9.9.9-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("sglang-9.9.9.dist-info/METADATA", "Name: sglang\nVersion: 9.9.9\n")
        archive.writestr("sglang/srt/arg_groups/choices.py", "")
        archive.writestr("sglang/srt/arg_groups/fields/schedule.py", fields)
    return path


def test_changes_of_flags_defaults_and_choices_are_told() -> None:
    old: dict[str, dict[str, Any]] = {
        "a": {"flag": "--a", "type": "int", "default": 1},
        "b": {"flag": "--b", "type": "choice", "default": "x", "choices": ["x", "y"]},
        "gone": {"flag": "--gone", "type": "str", "default": None},
    }
    new: dict[str, dict[str, Any]] = {
        "a": {"flag": "--a", "type": "int", "default": 2},
        "b": {"flag": "--b", "type": "choice", "default": "x", "choices": ["x", "z"]},
        "c": {"flag": "--c", "type": "bool", "default": True},
    }
    assert list(engine_news.changes(old, new)) == [
        "new flag --c (bool, default True)",
        "flag --gone is gone",
        "--a: default 1 -> 2",
        "--b: choices gains z, loses y",
    ]
    assert list(engine_news.changes(old, old)) == []


def test_a_newer_wheel_that_differs_ends_with_1(tmp_path: Path) -> None:
    script, path = str(SCRIPTS / "engine_news.py"), str(wheel(tmp_path, FIELDS))
    done = subprocess.run([sys.executable, script, "sglang", "--wheel", path], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "sglang 9.9.9 against our table of" in done.stdout
    assert "new flag --new-flag (switch, default False)" in done.stdout
    assert "flag --max-running-requests is gone" in done.stdout


def test_a_wheel_laid_out_in_another_way_is_news_too(tmp_path: Path) -> None:
    path = tmp_path / "sglang-9.9.9-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("sglang-9.9.9.dist-info/METADATA", "Name: sglang\nVersion: 9.9.9\n")
    same, lines = engine_news.news("sglang", path)
    assert not same
    assert "laid out in another way" in lines[0]


def test_without_an_index_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_news, "newest_version", lambda package: "")
    assert engine_news.news("vllm") == (True, ["vllm: skipped, the package index cannot be reached"])
