"""The simulator of docs/extending/simulator.md: installed as a package of its own, checked by the shipped suite, and tuned with."""

from __future__ import annotations

from pathlib import Path

import pytest
from _package import Package, install, page

from autoscout.core.journal import read_trials


@pytest.fixture
def package(tmp_path: Path) -> Package:
    return install(page("simulator"), tmp_path)


def test_it_keeps_the_contract(package: Package) -> None:
    done = package.python("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_checkpoint.py")
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def test_it_informs_a_study_that_names_it(package: Package) -> None:
    done = package.autoscout("tune", "job.yaml", "--max-trials", "3", "--rounds", "0", "-o", "results")
    assert done.returncode == 0, done.stderr
    (result,) = package.folder.glob("results/*")
    default, first, *_ = read_trials(result)
    assert default.config["interval_s"] == 7200
    assert first.config["interval_s"] == 1200, "the nearest to sqrt(2 * 30 s * 21600 s)"
    assert first.measurement.metrics["lost_share"] < default.measurement.metrics["lost_share"] / 2


def test_it_is_found_by_itself_where_it_understands_the_task(package: Package) -> None:
    campaign = (package.folder / "job.yaml").read_text().replace("simulate: {simulator: checkpoint}\n", "")
    (package.folder / "unnamed.yaml").write_text(campaign)
    found = package.autoscout("tune", "unnamed.yaml", "--max-trials", "2", "--rounds", "0", "-o", "found")
    assert "checkpoint" in found.stderr + found.stdout, "says what it starts from"
    (package.folder / "unnamed.yaml").write_text(campaign.replace("mtbf_s: 21600", "mtbf_s: -1"))
    refused = package.autoscout("tune", "unnamed.yaml", "--simulator", "checkpoint", "-o", "refused")
    assert refused.returncode == 2
    assert "must be a number of seconds above zero" in refused.stderr
