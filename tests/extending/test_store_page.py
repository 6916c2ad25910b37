"""The store of docs/extending/store.md: installed as a package of its own, checked by the shipped suite, and tuned with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from _package import Package, install, page


@pytest.fixture
def package(tmp_path: Path) -> Package:
    return install(page("store"), tmp_path)


@pytest.mark.slow
def test_it_keeps_the_contract(package: Package) -> None:
    done = package.python("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_jsonl.py")
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def test_a_damaged_file_is_told(package: Package) -> None:
    (package.folder / "team").mkdir()
    (package.folder / "team" / "changes.jsonl").write_text("no JSON\n")
    done = package.autoscout("tune", "sort.yaml", "--store", "jsonl:team")
    assert done.returncode == 2
    assert "cannot be read or written" in " ".join(done.stderr.split())


def test_it_is_chosen_by_its_scheme_and_resumed_from_another_folder(package: Package) -> None:
    done = package.autoscout("tune", "sort.yaml", "--store", "jsonl:team", "--max-trials", "3", "--rounds", "1", "-o", "results")
    assert done.returncode == 0, done.stderr
    changes = [json.loads(line) for line in (package.folder / "team" / "changes.jsonl").read_text().splitlines()]
    assert sum(len(change["trials"]) for change in changes if change["call"] == "append") >= 3
    (result,) = package.folder.glob("results/*")
    with (package.folder / "team" / "changes.jsonl").open("a") as file:
        file.write('{"at_s": 1.0, "call": "app')  # as a writer leaves it that is killed in the middle of a line
    (package.folder / "elsewhere").mkdir()
    again = package.python("-c", f"import os, sys; os.chdir('elsewhere'); sys.argv[1:] = ['resume', {str(result)!r}, '--max-trials', '4']\n"
                           "from autoscout.cli import program; program()")  # fmt: skip
    assert again.returncode == 0, again.stderr
    more = (package.folder / "team" / "changes.jsonl").read_text().splitlines()
    assert len(more) > len(changes), "the same store, from another folder"
    assert not (package.folder / "elsewhere" / "team").exists()
