"""Warm start: what a new study learns from, that it is said, and that it never changes afterwards."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from _blocks import ROOT, blocks
from _studies import campaign, tuned
from autoscout import minimize
from autoscout.cli.main import app
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.history import Past, PastTrial
from autoscout.core.protocols import StudyRecord
from autoscout.study.folder import Folder
from autoscout.study.start import StartingPoint, _chosen

STORE_GUIDE = ROOT / "docs" / "guides" / "store.md"
SPACE = {"block": [16, 32, 64, 128, 256, 512], "tile": range(1, 17), "fused": bool}


def cost(config: Config, best: int = 11) -> float:
    block, tile = int(str(config["block"])), int(str(config["tile"]))
    return (1.0 if config["fused"] else 1.4) * (1 + abs(block.bit_length() - 8) + 0.1 * abs(tile - best))


def study(folder: Path, name: str, trials: int, rows: int, best: int = 11, kernel: str = "gemm", **how: Any) -> Any:
    job = {"rows": rows, "kernel": kernel}
    return minimize(lambda config: cost(config, best), SPACE, trials, store=folder / "all.db", name=name, workload=job, **how)


def test_a_similar_study_in_the_same_store_is_learnt_from(tmp_path: Path) -> None:
    study(tmp_path, "old", 30, rows=4096)
    found = study(tmp_path, "new", 4, rows=3072)
    assert [past.study for past in found.start.past] == ["old"]
    assert found.start.past[0].similarity == pytest.approx((1 + 1 + 0.75) / 3)
    assert found.value == pytest.approx(1.0), "the old optimum is tried right after the default"
    cold = study(tmp_path, "cold", 4, rows=3072, warm_start=False)
    assert cold.start.past == ()
    assert cold.value > 1.0


def test_a_job_that_differs_in_most_is_not(tmp_path: Path) -> None:
    study(tmp_path, "old", 6, rows=4096)
    assert study(tmp_path, "new", 2, rows=8, kernel="sort").start.past == ()


@pytest.mark.parametrize("searcher", ["hybrid", "hybrid-paper", "evolution"])
def test_resumed_equals_uninterrupted_whatever_others_do_meanwhile(tmp_path: Path, searcher: str) -> None:
    study(tmp_path, "old", 20, rows=4096)
    (tmp_path / "copy").mkdir()
    shutil.copy(tmp_path / "all.db", tmp_path / "copy" / "all.db")
    whole = study(tmp_path, "new", 14, rows=3072, searcher=searcher)
    first = study(tmp_path / "copy", "new", 7, rows=3072, searcher=searcher)
    study(tmp_path / "copy", "other", 20, rows=3072, best=3, seed=9)  # more alike than the old one, and it misleads
    rest = study(tmp_path / "copy", "new", 14, rows=3072, searcher=searcher)
    assert [trial.config for trial in rest.trials] == [trial.config for trial in whole.trials]
    assert rest.start.past == first.start.past == whole.start.past != ()


def test_a_searcher_that_takes_no_past_tries_its_winner_first(tmp_path: Path) -> None:
    old = study(tmp_path, "old", 40, rows=4096)
    found = study(tmp_path, "new", 3, rows=4096, searcher="random")
    assert found.trials[1].config == old.best


def test_a_study_that_began_cold_stays_cold(tmp_path: Path) -> None:
    study(tmp_path, "new", 3, rows=3072)
    study(tmp_path, "old", 20, rows=4096)
    assert study(tmp_path, "new", 5, rows=3072).start.past == ()


def test_past_given_by_hand_is_not_added_to(tmp_path: Path) -> None:
    study(tmp_path, "old", 6, rows=4096)
    assert study(tmp_path, "new", 2, rows=4096, options={"past": []}).start.past == ()


def test_campaigns_learn_too_and_keep_it_in_the_store_not_in_the_file(tmp_path: Path) -> None:
    tuned(tmp_path, "old")
    setup = campaign(tmp_path, "new", gpus=32)
    past = StartingPoint.decide(setup, Folder(tmp_path / "new")).past
    assert [item.study for item in past] == ["old"]
    assert not (tmp_path / "new").exists(), "looking writes nothing"
    tuned(tmp_path, "new", gpus=32)
    assert "past" not in (tmp_path / "new" / "campaign.yaml").read_text()
    tuned(tmp_path, "third", gpus=32)
    assert StartingPoint.decide(setup, Folder(tmp_path / "new")).past == past, "fixed when the study began"
    assert StartingPoint.decide(campaign(tmp_path, "x", search={"warm_start": False}), Folder(tmp_path / "x")).past == ()
    assert StartingPoint.decide(campaign(tmp_path, "x", simulate={"simulator": "training"}), Folder(tmp_path / "x")).past == ()


def test_other_places_can_be_named(tmp_path: Path) -> None:
    tuned(tmp_path, "old", store=None)
    for place in (tmp_path, tmp_path / "old", tmp_path / "old" / "store.db"):
        setup = campaign(tmp_path, "new", store=None, search={"learn_from": [str(place)]})
        assert [item.study for item in StartingPoint.decide(setup, Folder(tmp_path / "new")).past] == ["old"]
    assert StartingPoint.decide(campaign(tmp_path, "new", store=None), Folder(tmp_path / "new")).past == (), "not unasked"
    setup = campaign(tmp_path, "new", search={"learn_from": [str(tmp_path / "a"), str(tmp_path / "b")]})
    with pytest.raises(ConfigError) as caught:
        StartingPoint.decide(setup, Folder(tmp_path / "new"))
    assert {fault.value for fault in caught.value.faults} == {str(tmp_path / "a"), str(tmp_path / "b")}


def test_the_resolved_campaign_names_places_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    spec = campaign(tmp_path, "new", search={"learn_from": ["past", "postgresql://me:secret@host/db"], "seed": 3}).spec
    assert spec["search"] == {"learn_from": [str(tmp_path / "past"), "postgresql://me@host/db"], "seed": 3}


def test_the_command_line_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    tuned(tmp_path, "old")
    common = ["tune", "virtual", "--hardware", "gpus=32xA100-80", "--store", str(tmp_path / "all.db"), "-o", str(tmp_path), "--dry-run"]
    told = CliRunner().invoke(app, [*common, "-e", "new"])
    assert "Warm start from 6 trials of study old (similarity 0." in told.output
    (step,) = [step for block in blocks(STORE_GUIDE) if block.language == "console" for step in block.steps]
    assert not step.differs(told.output)
    assert "Warm start" not in CliRunner().invoke(app, [*common, "-e", "new", "--no-warm-start"]).output


def test_the_example_of_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[3] / "docs" / "guides" / "python.md").read_text()
    (code,) = re.findall(r"```python\n(from autoscout import minimize.*?)```", page, flags=re.DOTALL)
    exec(compile(code, "python.md", "exec"), {})
    assert "8 trials of study gemm-4096 (similarity 0.92)" in capsys.readouterr().out


def past(name: str, similarity: float) -> Past:
    return Past(study=name, similarity=similarity, trials=(PastTrial(config={"x": 1}, loss=1.0),), last={"round": 1})


def test_the_record_reads_as_it_was_written_and_rubbish_does_no_harm(tmp_path: Path) -> None:
    setup = campaign(tmp_path, "new")
    start = StartingPoint(past=(past("a", 0.7), past("b", 0.6)), simulator="training", use="prior", automatic=True)
    record = StudyRecord(name="new", task=setup.task, space="", spec=start.to_record())
    assert StartingPoint.from_record(setup, record) == start
    odd = StudyRecord(name="new", task=setup.task, space="", spec={"past": [{"similarity": 7}], "informed_by": 3})
    assert StartingPoint.from_record(setup, odd) == StartingPoint()


def test_the_most_similar_are_chosen_each_once() -> None:
    found = _chosen([past("a", 0.6), past("b", 0.9), past("b", 0.9), past("c", 0.7), past("d", 0.65)])
    assert [study.study for study in found] == ["b", "c", "d"]
    assert str(found[0]) == "1 trials of study b (similarity 0.9)"
