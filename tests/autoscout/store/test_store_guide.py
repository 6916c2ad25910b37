"""The examples of docs/guides/store.md run as they are."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from autoscout.core.journal import read_trials
from autoscout.store.sql.store import SqlStore
from autoscout.testing.store import record, trial

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "store.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "autoscout_results" / "demo"
    with SqlStore(folder / "store.db", journal=folder / "trials.jsonl") as store:
        store.open(record(name="demo"))
        store.append("demo", [trial(0), trial(1)])
    monkeypatch.chdir(tmp_path)
    return folder


def _run(example: str) -> dict[str, object]:
    names: dict[str, object] = {}
    exec(compile(example, str(GUIDE), "exec"), names)
    return names


def test_reading_trials(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _run(EXAMPLES[0])
    assert capsys.readouterr().out.splitlines()[0] == "0 ok {'kind': 'a', 'x': 0} {'time_s': 1.0, 'memory_gb': 40.0}"


def test_past_studies(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _run(EXAMPLES[1])
    assert capsys.readouterr().out.startswith("1.00 demo Trial(")


def test_bringing_trials_back(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = read_trials(demo)
    subprocess.run(re.search(r"^(mv .*)$", GUIDE.read_text(), re.MULTILINE)[1], shell=True, check=True, cwd=demo)  # type: ignore[index]
    with SqlStore(demo / "store.db", journal=demo / "trials.jsonl") as store:
        store.open(record(name="demo"))
    _run(EXAMPLES[2])
    assert capsys.readouterr().out == "2 trials are back\n"
    with SqlStore(demo / "store.db", journal=demo / "trials.jsonl") as store:
        store.open(record(name="demo"))
    assert read_trials(demo) == saved


def test_every_example_is_run() -> None:
    assert len(EXAMPLES) == 3, "a new example needs a test"


@pytest.mark.skipif(not shutil.which("sqlite3"), reason="no sqlite3 command here")
def test_plain_sql(demo: Path) -> None:
    line = re.search(r"^(sqlite3 .*)$", GUIDE.read_text(), re.MULTILINE)
    assert line is not None
    done = subprocess.run(line[1].replace("output_throughput", "time_s"), shell=True, check=True, cwd=demo, capture_output=True, text=True)
    assert done.stdout == "0|ok|1.0\n1|ok|2.0\n"
