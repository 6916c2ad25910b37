"""One thing broken, often, in real studies: a little of the cases that need nothing special here, all of it in a soak run."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.endurance import CASES, endure

SCALE = float(os.environ.get("ENDURANCE_SCALE", "1"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["studies", "controller", "trials"])
def test_a_little_of_it(name: str) -> None:
    endured = endure(name, max(1, CASES[name].whole // 200), seed=1)
    assert not endured.faults, endured


@pytest.mark.soak
@pytest.mark.parametrize("name", [name for name in CASES if name != "fuzz"])  # which `test_inputs.py` does
def test_all_of_it(name: str) -> None:
    endured = endure(name, math.ceil(CASES[name].whole * SCALE), seed=0)
    if endured.skipped:
        pytest.skip(endured.skipped)
    assert not endured.faults, endured
    assert endured.done > 0
