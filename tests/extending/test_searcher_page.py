"""The searcher of docs/extending/searcher.md: installed as a package of its own, checked by the shipped suite, and tuned with."""

from __future__ import annotations

from pathlib import Path

import pytest
from _package import ROOT, Package, files, install, page

from autoscout.core.journal import read_trials


@pytest.fixture
def package(tmp_path: Path) -> Package:
    return install(page("searcher"), tmp_path)


def test_it_keeps_the_contract(package: Package) -> None:
    done = package.python("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_downhill.py")
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def test_it_proposes_the_trials_of_a_study(package: Package) -> None:
    done = package.autoscout("tune", "sort.yaml", "--max-trials", "4", "--rounds", "0", "-o", "results")
    assert done.returncode == 0, done.stderr
    (result,) = package.folder.glob("results/*")
    assert [trial.proposal.origin.by for trial in read_trials(result)] == ["default", "downhill", "downhill", "downhill"]


def test_the_example_from_python_is_the_same_class() -> None:
    shown = files(page("searcher"))["autoscout_downhill.py"]
    example = (ROOT / "examples" / "own_searcher.py").read_text()
    assert shown[shown.index("@dataclass") :] in example
