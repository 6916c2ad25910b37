"""The other way to add a part: one file in the folder that its page names; the suites of this repository pick it up."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from _package import ROOT, files, page

TESTS = {
    "backend": "tests/autoscout/backends/test_conformance_backend.py",
    "searcher": "tests/autoscout/search/test_conformance_searcher.py",
    "simulator": "tests/autoscout/simulators/test_simulator_conformance.py",
    "executor": "tests/autoscout/execute/test_executor_conformance.py",
    "store": "tests/autoscout/store/test_store_conformance.py",
    "scheduler": "tests/autosched/sim/test_conformance_scheduler.py",
    "live": "tests/autosched/live/test_conformance_live.py",
    "trace-format": "tests/autosched/traces/test_conformance_trace_format.py",
}
"""Kind of plug-in -> the tests that run over every one there is."""


def names() -> dict[str, tuple[str, str]]:
    """Kind -> (file below src, name of the class) as its page says."""
    found = {}
    for kind in TESTS:
        told = re.search(r"`src/(\S+?\.py)`,\s+with\s+`__all__ = \[\"(\w+)\"\]`", page(kind).read_text())
        assert told is not None, f"the page of the {kind} names the file"
        found[kind] = (told[1], told[2])
    return found


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source tree with one more file of each kind."""
    folder = tmp_path_factory.mktemp("source") / "src"
    shutil.copytree(ROOT / "src", folder, ignore=shutil.ignore_patterns("__pycache__"))
    for kind, (path, name) in names().items():
        (code,) = (text for text in files(page(kind)).values() if f"class {name}" in text)
        (folder / path).write_text(f'{code}\n\n__all__ = ["{name}"]\n')
    return folder


def python(source: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTEST_ADDOPTS": "-p no:cacheprovider"}
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True)


def test_they_are_found(source: Path) -> None:
    listed = json.loads(python(source, "-m", "autoscout", "doctor", "--json").stdout)
    usable = {(plugin["kind"], plugin["name"]) for plugin in listed["plugins"] if plugin["usable"]}
    assert {(kind, Path(path).stem.replace("_", "-")) for kind, (path, _) in names().items()} <= usable


@pytest.mark.slow
def test_the_suites_pick_them_up(source: Path) -> None:
    done = python(source, "-m", "pytest", "--collect-only", "-q", *TESTS.values())
    assert done.returncode == 0, done.stdout
    for kind, (path, _) in names().items():
        name = Path(path).stem.replace("_", "-")
        tests = [line for line in done.stdout.splitlines() if re.search(rf"\[(\S+-)?{name}(-\S+)?\]", line)]
        assert {line.partition("::")[0] for line in tests} == {TESTS[kind]}
        assert len(tests) >= 5, f"{len(tests)} tests of the {kind}"
