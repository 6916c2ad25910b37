"""The executor of docs/extending/executor.md: installed as a package of its own, checked by the shipped suite, and tuned with."""

from __future__ import annotations

from pathlib import Path

import pytest
from _package import Package, install, page


@pytest.fixture
def package(tmp_path: Path) -> Package:
    return install(page("executor"), tmp_path)


@pytest.mark.slow
def test_it_keeps_the_contract(package: Package) -> None:
    done = package.python("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_nice.py")
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def test_it_runs_the_trials_of_a_study(package: Package) -> None:
    done = package.autoscout("tune", "sort.yaml", "--max-trials", "3", "--rounds", "1", "-o", "results")
    assert done.returncode == 0, done.stderr
    commands = [path.read_text() for path in package.folder.glob("results/*/trials/*/command.txt")]
    assert len(commands) >= 3
    assert all(text.startswith("nice -n 10 /bin/sh -c ") for text in commands)


def test_its_options_are_checked(package: Package) -> None:
    (package.folder / "wrong.yaml").write_text((package.folder / "sort.yaml").read_text().replace("level: 10", "level: 30, sltos: 2"))
    done = package.autoscout("tune", "wrong.yaml")
    assert done.returncode == 2
    told = " ".join(done.stderr.split())
    assert "must be between 0 and 19" in told
    assert "Did you mean 'slots'?" in told
