"""The trace format of docs/extending/trace-format.md: installed as a package of its own, checked by the shipped suite, and simulated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from _package import Package, install, page


@pytest.fixture
def package(tmp_path: Path) -> Package:
    package = install(page("trace-format"), tmp_path)
    done = package.python(
        "-c", "import autoscout_lsf_csv, pathlib; pathlib.Path('lsf.csv').write_text(*autoscout_lsf_csv.LsfCsv.example.values())"
    )
    assert done.returncode == 0, done.stderr
    return package


def test_it_keeps_the_contract(package: Package) -> None:
    done = package.python("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_lsf_csv.py")
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def test_its_files_are_recognised_and_simulated(package: Package) -> None:
    done = package.autoscout("sched", "simulate", "--trace", "lsf.csv", "--cluster", "2x8", "--scheduler", "fifo", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["metrics"]["ended"] == 2
    assert "asks for GPUs: 2 of 3 jobs kept" in package.autoscout("sched", "trace", "describe", "lsf.csv", "--format", "lsf-csv").stdout


def test_doctor_and_the_message_about_an_unknown_format_list_it(package: Package) -> None:
    listed = json.loads(package.autoscout("doctor", "--json").stdout)["plugins"]
    assert [plugin["usable"] for plugin in listed if (plugin["kind"], plugin["name"]) == ("trace-format", "lsf-csv")] == [True]
    refused = package.autoscout("sched", "trace", "describe", "lsf.csv", "--format", "lfs")
    assert refused.returncode == 2
    assert "lsf-csv" in refused.stderr
