"""`autoscout bench spread`: good and bad configurations of recorded tables."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from bench_tables import square, write_folder
from typer.testing import CliRunner

from autoscout.core.errors import ConfigError
from autoscout_lab.bench.spread import as_page, as_text, distribution_of_table
from autoscout_lab.bench.table import Table
from autoscout_lab.cli import app


def run(*words: str) -> str:
    outcome = CliRunner().invoke(app, ["spread", *words], catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    return outcome.output


def test_shares_are_those_that_a_hand_counts() -> None:
    table = square()
    spread = distribution_of_table(table)
    assert spread is not None
    values = table.values[np.isfinite(table.values)]
    assert spread.counted.configs == len(table) == 72
    assert spread.counted.failed == 2
    assert spread.counted.near(0.5) == int((values.min() >= 0.5 * values).sum())
    assert spread.counted.worst == pytest.approx(values.max() / values.min())
    assert sum(group.configs for group in spread.by_changes.values()) == 72
    assert spread.by_changes[0].configs == 1, "the default itself"
    assert "interval" not in spread.sentence, "all rows are known: no error of a sample"


def test_rates_are_better_when_they_are_higher(tmp_path: Path) -> None:
    write_folder(tmp_path, objective="max")
    told = json.loads(run("--tables", str(tmp_path), "--json"))["tables"]["toy"]
    assert told["sample"]["best_over_worst"] == 15.0, "of 1 to 15"
    assert told["sample"]["failed"] == 1
    assert told["metric"] == "value"
    assert set(told["by_changes"]) <= {"0", "1", "2", "3"}


def test_a_table_a_sentence_and_curves(tmp_path: Path) -> None:
    write_folder(tmp_path / "tables")
    told = run("--tables", str(tmp_path / "tables"), "--output", str(tmp_path / "out"))
    assert "toy: 1 of 12 configurations of the table are within 10% of the best found" in told
    assert "2 changed" in told
    assert "All rows of a table count." in told
    page = (tmp_path / "out" / "spread.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 1
    assert "Good and bad configurations" in page


def test_values_without_a_ratio_are_said_to_have_none() -> None:
    table = square()
    shifted = Table("shifted", table.space, table.configs, table.values - 5.0, table.task)
    assert distribution_of_table(shifted) is None
    assert "shifted: values at or below zero have no ratio" in as_text({"shifted": None})
    assert "<svg" not in as_page({"shifted": None})


def test_rows_that_a_searcher_chose_are_no_sample() -> None:
    spread = distribution_of_table(square(), by_searcher=True)
    assert spread is not None
    assert "no sample" in spread.caveat


def test_bad_input_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no tables here"):
        run("--tables", str(tmp_path))
