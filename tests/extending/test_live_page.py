"""The live scheduler of docs/extending/live.md: installed as a package of its own, checked by the shipped suite, and controlled."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from _package import Package, install, page


@pytest.fixture
def package(tmp_path: Path) -> Package:
    return install(page("live"), tmp_path)


def test_it_keeps_the_contract(package: Package) -> None:
    done = package.python("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_spool.py")
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def test_it_is_controlled(package: Package) -> None:
    (package.folder / "spool").mkdir()
    done = package.python("-c", "import pathlib, autoscout_spool; autoscout_spool.Spool.example(pathlib.Path('spool'))")
    assert done.returncode == 0, done.stderr
    done = package.autoscout("sched", "control", "control.yaml", "--once")
    assert done.returncode == 0, done.stderr
    done = package.autoscout("sched", "propose", "control.yaml", "overtake=true", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["decisions"][0]["after"]["overtake"] is True


def test_its_faults_come_together_and_other_kinds_are_suggested(package: Package) -> None:
    text = (package.folder / "control.yaml").read_text()
    (package.folder / "control.yaml").write_text(text.replace("folder: spool}", "foldr: absent}"))
    refused = package.autoscout("sched", "control", "control.yaml", "--once")
    assert refused.returncode == 2
    assert "Did you mean 'folder'?" in refused.stderr
    (package.folder / "control.yaml").write_text(text.replace("kind: spool", "kind: spol"))
    assert "Did you mean 'spool'?" in package.autoscout("sched", "control", "control.yaml", "--once").stderr
