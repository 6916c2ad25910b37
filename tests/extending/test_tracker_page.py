"""The tracker of docs/extending/tracker.md: installed as a package of its own, checked by the shipped suite, and tuned with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from _package import Package, install, page

from autoscout.core.journal import read_trials


@pytest.fixture
def package(tmp_path: Path) -> Package:
    return install(page("tracker"), tmp_path)


def test_it_keeps_the_contract(package: Package) -> None:
    done = package.python("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_ledger.py")
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def test_it_shows_the_trials_of_a_study_while_it_runs_and_later(package: Package) -> None:
    done = package.autoscout("tune", "sort.yaml", "--max-trials", "3", "--rounds", "1", "-o", "results")
    assert done.returncode == 0, done.stderr
    assert "tracked: ledger: " in done.stderr
    (result,) = package.folder.glob("results/*")
    trials = read_trials(result)
    (home,) = result.glob("ledger/*")
    shown = {path.stem: json.loads(path.read_text()) for path in home.glob("*.json")}
    assert shown.keys() == {"study", "result", *(str(trial.number) for trial in trials)}
    assert shown["result"]["state"] == "finished"
    assert {"report.html", "best/run.sh"} <= set(shown["result"]["files"])
    again = package.autoscout("track", str(result), "--to", "ledger:path=elsewhere", "--json")
    assert again.returncode == 0, again.stderr
    (answer,) = json.loads(again.stdout)["tracked"]
    assert (answer["sent"], answer["trials"], answer["is_whole"]) == (len(trials), len(trials), True)
    assert len(list((package.folder / "elsewhere").glob("*/[0-9]*.json"))) == len(trials)
