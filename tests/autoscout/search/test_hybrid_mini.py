"""The miniature in the docs runs, and finds what it should."""

from __future__ import annotations

import runpy
from pathlib import Path

MINI = Path(__file__).parents[3] / "docs" / "mini.py"


def test_the_miniature_finds_a_good_configuration() -> None:
    tune = runpy.run_path(str(MINI))["tune"]
    seconds = sorted(tune(60, seed)[0][2] for seed in range(9))
    assert seconds[4] < 1.1 * 5.644, "the optimum, by enumeration, is 5.644 s/step"


def test_it_fits_on_one_page() -> None:
    assert len(MINI.read_text().splitlines()) <= 150
