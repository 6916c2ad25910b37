"""`python -m benchmarks.search`: the same rules for every source tree, figures by hand, and a page."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest
from bench_tables import write_folder

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))

from benchmarks import search  # noqa: E402


def run(label: str, table: str, seed: int, area: float, evaluations: int) -> search.Run:
    more = {"reached": evaluations < 10, "failures": 1, "ms": 2.0, "budget": 5}
    return {"label": label, "table": table, "seed": seed, "area": area, "evaluations": evaluations, **more}


def by_key(*runs: search.Run) -> search.Runs:
    return {(item["label"], item["table"], item["seed"]): item for item in runs}


def test_figures_by_hand() -> None:
    runs = by_key(
        *(run("hybrid", table, seed, area, 2 if table == "a" else 8) for table, area in (("a", 0.1), ("b", 0.3)) for seed in (0, 1)),
        run("hybrid (before)", "a", 0, 0.2, 4),
        run("hybrid (before)", "a", 1, 0.4, 4),
        run("hybrid (before)", "b", 0, 0.3, 8),
    )
    found = search.summary(runs, ["hybrid (before)"])
    assert found["overall"]["hybrid"]["area"] == pytest.approx(0.2)
    assert found["overall"]["hybrid"]["evaluations"] == pytest.approx(4.0), "geometric mean over tables"
    assert found["overall"]["hybrid"]["area_error"] == 0.0
    apart = found["compared"]["hybrid (before)"]
    assert apart["runs"] == 3
    assert apart["area"] == pytest.approx((-0.2 + 0.0) / 2), "paired by table and seed, then the mean over tables"
    assert apart["evaluations"] == pytest.approx((math.log(2 / 4) + 0.0) / 2)
    assert apart["area_error_seeds"] == pytest.approx(math.sqrt(0.02 / 2) / 2), "gaps of -0.1 and -0.3 on one table, one gap on the other"
    assert "hybrid (before)" in search.as_text(found)


def test_a_race_of_two_source_trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(search, "FOLDERS", (write_folder(tmp_path / "tables"), tmp_path / "absent"))
    monkeypatch.setattr(search, "PAGE", tmp_path / "search.md")
    kept = tmp_path / "runs.jsonl"
    words = ["--seeds", "2", "--budget", "5", "--searchers", "random", "--other-seeds", "1", "--runs", str(kept), "--json", "--write"]
    monkeypatch.setattr(sys, "argv", ["search", *words, "--source", f"same={ROOT / 'src'}"])
    search.main()
    told = capsys.readouterr()
    found = json.loads(told.out.splitlines()[-1])
    assert "skipped" in told.err
    assert found["overall"]["hybrid"]["seeds"] == 2
    assert found["overall"]["random"]["seeds"] == 1
    assert found["compared"]["hybrid (same)"]["area"] == 0.0, "the same code does the same"
    lines = kept.read_text()
    search.main()
    assert kept.read_text() == lines, "a finished race is not run again"
    page = (tmp_path / "search.md").read_text()
    assert str(tmp_path) not in page, "no paths of this machine"
    assert "| commit |" in page
