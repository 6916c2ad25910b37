from __future__ import annotations

import json
from pathlib import Path

import pytest

from _cli_program import campaign
from autoscout.cli.main import main
from autoscout_lab.bench import find_tables, load_table


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explain")
    file = campaign(folder, search={"searcher": "coordinate"}, budget={"trials": 4}, finals={"rounds": 1})
    with pytest.raises(SystemExit) as leave:
        main(["tune", str(file), "--output-dir", str(folder / "out"), "--json"])
    assert leave.value.code == 0
    return folder / "out" / "numbers"


def test_a_study_is_explained(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leave:
        main(["explain", str(study)])
    assert leave.value.code == 0
    text = capsys.readouterr().out
    assert "default" in text
    assert "coordinate" in text
    assert "x 0 -> 1" in text or "y 0 -> 1" in text


def test_one_trial_and_json(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["explain", str(study), "--trial", "0"])
    assert "proposed by default" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["explain", str(study), "--json"])
    assert json.loads(capsys.readouterr().out)["advances"][0]["number"] == 0
    with pytest.raises(SystemExit) as leave:
        main(["explain", str(study), "--trial", "99"])
    assert leave.value.code == 2
    assert "no such trial" in capsys.readouterr().err


@pytest.mark.parametrize("part", ["", "t4.json"])
def test_a_study_becomes_a_table_for_benchmarks(study: Path, part: str) -> None:
    (source,) = find_tables(str(study / part))
    table = load_table(source)
    assert len(table) == 4
    assert table.optimum == 10.0
