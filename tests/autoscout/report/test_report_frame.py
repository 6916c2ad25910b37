"""Trials as a table for notebooks, and what a cell shows."""

from __future__ import annotations

import sys

import pytest
from report_studies import DEFAULT, make_study, make_task

import autoscout
from autoscout.analysis.frame import trials_dataframe
from autoscout.analysis.summary import summarise
from autoscout.core.errors import PluginError
from autoscout.report.cell import result_cell


def test_one_row_per_trial_with_the_columns_of_the_csv() -> None:
    pandas = pytest.importorskip("pandas", reason="the extra pandas is not installed")
    trials = make_study(20)
    table = trials_dataframe(make_task(), trials)
    assert len(table) == len(trials)
    assert table.index.name == "number"
    assert table["metric.output_throughput"].max() == max(t.measurement.metrics.get("output_throughput", 0.0) for t in trials)
    assert set(table["knob.flash"]) == {True, False}
    assert pandas.isna(table.loc[table["status"] != "ok", "metric.output_throughput"]).all()
    assert str(table["started"].dtype).startswith("datetime64")
    assert trials_dataframe(make_task(), []).empty


def test_without_pandas_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(PluginError, match=r"autoscout\[pandas\]"):
        trials_dataframe(make_task(), [])


def test_an_outcome_shows_itself() -> None:
    found = autoscout.minimize(lambda config: abs(config["x"] - 3) + 1.0, {"x": range(8)}, trials=6)
    shown = found._repr_html_()
    assert "<table>" in shown
    assert "gain" in shown
    hostile = summarise(make_task(), make_study(12), DEFAULT, study="<script>alert(1)</script>")
    assert "<script>" not in result_cell(hostile)
