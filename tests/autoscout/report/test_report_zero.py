"""A metric that reaches zero is no number of times better."""

from __future__ import annotations

import re
from pathlib import Path

import autoscout
from autoscout.analysis.gain import paired_gain


def test_reaching_zero_is_said_as_it_is(tmp_path: Path) -> None:
    outcome = autoscout.minimize(lambda config: 9 - config.whole("x"), {"x": {"range": [0, 9]}}, trials=12, folder=tmp_path / "study")
    assert outcome.summary.verdict.value == "gain"
    assert outcome.summary.gain.ratio is None
    assert outcome.summary.headline.startswith("value 9.000 -> 0: ")
    page = (tmp_path / "study" / "report.html").read_text()
    assert "<strong>9.000 → 0</strong>" in page
    for text in (page, (tmp_path / "study" / "best" / "README.md").read_text()):
        assert not re.search(r"2\.0+x", text)


def test_a_gain_of_zeros_over_zeros_is_not_known() -> None:
    assert paired_gain([0.0], [0.0], minimize=True).ratio is None
    assert paired_gain([4.0], [2.0], minimize=True).ratio == 2.0
    assert paired_gain([-1.0], [-2.0], minimize=True).ratio == 2.0, "differences of what may be negative"
