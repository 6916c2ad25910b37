"""The scheduler of docs/extending/scheduler.md: installed as a package of its own, checked by the shipped suite, and simulated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from _package import Package, install, page


@pytest.fixture
def package(tmp_path: Path) -> Package:
    return install(page("scheduler"), tmp_path)


def test_it_keeps_the_contract(package: Package) -> None:
    done = package.python("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_smallest.py")
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def test_it_is_listed_and_simulated(package: Package) -> None:
    listed = json.loads(package.autoscout("sched", "list", "--json").stdout)
    assert listed["smallest"] == {"summary": "small jobs first; waiting helps", "knobs": ["gpus_per_hour", "placement"]}
    question = ("--trace", "synthetic:philly:200:1:1", "--cluster", "8x8", "--scheduler", "smallest")
    done = package.autoscout("sched", "simulate", *question, "--set", "gpus_per_hour=0.5", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["config"] == {"gpus_per_hour": 0.5, "placement": "consolidated"}
    assert found["metrics"]["ended"] == 200
