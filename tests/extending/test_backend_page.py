"""The backend of docs/extending/backend.md: installed as a package of its own, checked by the shipped suite, and tuned with."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from _package import Package, install, page

VERSION = subprocess.run(["sort", "--version"], capture_output=True, text=True).stdout
pytestmark = pytest.mark.skipif("GNU" not in VERSION, reason="needs GNU sort")


@pytest.fixture
def package(tmp_path: Path) -> Package:
    return install(page("backend"), tmp_path)


def test_it_keeps_the_contract(package: Package) -> None:
    done = package.python("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_sort.py")
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def test_it_is_found_and_tuned(package: Package) -> None:
    assert "buffer_mb" in package.autoscout("space", "show", "sort").stdout
    done = package.autoscout("tune", "sort.yaml", "--max-trials", "3", "--rounds", "1", "-w", "rows=2000", "-o", "results")
    assert done.returncode == 0, done.stderr
    (best,) = package.folder.glob("results/*/best")
    (package.folder / "input").write_text("b\na\n")
    script = subprocess.run(["sh", str(best / "run.sh"), "input"], cwd=package.folder, capture_output=True, text=True)
    assert script.stdout == "a\nb\n", script.stderr


def test_its_faults_come_together(package: Package) -> None:
    done = package.autoscout("tune", "sort.yaml", "-w", "rows=1", "-w", "rwos=3", "--metric", "rows_per_sec")
    assert done.returncode == 2
    for part in ("must be at least 2", "Did you mean 'rows'?", "Did you mean 'rows_per_s'?"):
        assert part in " ".join(done.stderr.split())
