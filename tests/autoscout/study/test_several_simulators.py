"""Several simulators in a study: as prior and behind the switch, what they learn from, and where their weights are shown."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import _cli_program
from _studies import campaign, tuned
from autoscout.core.errors import ConfigError
from autoscout.core.origin import By
from autoscout.report.publish import publish
from autoscout.study.assemble import build_searcher, build_simulator
from autoscout.study.campaign import build_campaign
from autoscout.study.folder import Folder
from autoscout.study.learned import read_table
from autoscout.study.start import StartingPoint

FOUR = [f"linear:subset={name}" for name in ("3d-parallelism", "5d-parallelism", "ddp-aware", "communication-aware")]


def simulate(**block: Any) -> dict[str, Any]:
    return {"simulate": block, "search": {"warm_start": False}}


def table(folder: Path, rows: int = 30) -> Path:
    """A table of measurements, as somebody may have it: what the virtual cluster says of some configurations, and columns of their own."""
    outcome = tuned(folder, "source", trials=rows, search={"searcher": "random", "warm_start": False}, simulate={"simulator": "none"})
    names = list(outcome.setup.space.knobs)
    path = folder / "table.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*names, "step_s", "who"])
        for trial in outcome.trials:
            writer.writerow([*(trial.config.get(name, "") for name in names), trial.measurement.metrics.get("step_s", ""), "me"])
    return path


def test_an_ensemble_is_the_prior_after_a_profiling_phase(tmp_path: Path) -> None:
    outcome = tuned(tmp_path, "both", trials=10, **simulate(simulators=["training", "linear"], profile=4))
    by = [trial.proposal.origin.by for trial in outcome.trials]
    assert by == [By.DEFAULT, *[By.PROFILING] * 4, *by[5:]]
    assert set(by[5:]) == {"hybrid"}
    predicted = ["predicted" in trial.measurement.conditions for trial in outcome.trials]
    assert predicted[1:5] == [False] * 4, "nobody knew anything yet"
    assert all(predicted[5:])
    assert (outcome.start.simulator, outcome.start.use, outcome.start.profiled) == ("training, linear", "prior", 4)


def test_resumed_equals_uninterrupted(tmp_path: Path) -> None:
    block = simulate(simulators=["training", "linear"], profile=3)
    whole = tuned(tmp_path, "new", trials=8, **block)
    setup = campaign(tmp_path, "new", trials=8, **block)
    start = StartingPoint.decide(setup, Folder(tmp_path / "new"))
    for count in range(1, 8):  # killed after this many trials
        searcher = build_searcher(setup, start)
        searcher.tell(whole.trials[:count])
        assert searcher.ask(1, setup.given)[0].config == whole.trials[count].config


def test_a_table_and_past_studies_teach_the_regressions(tmp_path: Path) -> None:
    path = table(tmp_path)
    setup = campaign(tmp_path, "taught", **simulate(simulators=FOUR, learn_from=[str(path), str(tmp_path / "all.db")]))
    start = StartingPoint.decide(setup, Folder(tmp_path / "taught"))
    assert start.profiled == 0, "there is something to learn from"
    assert len(start.learned) == 60, "30 rows of the table, and 30 trials of the store"
    standings = build_simulator(setup, start).standings
    assert [one.name for one in standings] == FOUR
    assert sum(one.weight for one in standings) == pytest.approx(1.0)
    assert len({round(one.error or 0.0, 9) for one in standings}) == 4, "no two of them are the same"


def test_what_was_learned_is_kept_with_the_study(tmp_path: Path) -> None:
    path = table(tmp_path)
    block = simulate(simulators=["linear", "log-linear"], learn_from=str(path))
    before = tuned(tmp_path, "taught", trials=2, **block).start
    path.unlink()
    setup = campaign(tmp_path, "taught", trials=2, **block)
    assert StartingPoint.decide(setup, Folder(tmp_path / "taught")).learned == before.learned


def test_weights_follow_equation_2(tmp_path: Path) -> None:
    path = table(tmp_path)
    setup = campaign(tmp_path, "taught", **simulate(simulators=["training", "log-linear"], learn_from=str(path)))
    one, other = build_simulator(setup, StartingPoint.decide(setup, Folder(tmp_path / "taught"))).standings
    assert one.r2 is not None
    assert other.r2 is not None
    positive = max(0.0, one.r2), max(0.0, other.r2)
    assert one.weight == pytest.approx(positive[0] / sum(positive))


def test_regressions_get_a_profile_where_there_is_nothing_to_learn_from(tmp_path: Path) -> None:
    def profiled(trials: int, **block: Any) -> int:
        return StartingPoint.decide(campaign(tmp_path, "x", trials=trials, **simulate(**block)), Folder(tmp_path / "x")).profiled

    assert profiled(40, simulators=["training", "linear"]) == 10, "a quarter of the budget"
    assert profiled(400, simulator="linear", use="adaptive") == 16
    assert profiled(400, simulator="linear", use="adaptive", profile=0) == 0
    assert profiled(400, simulator="training") == 0, "it needs none"


def test_weights_and_errors_are_in_the_report_and_in_explain(tmp_path: Path) -> None:
    outcome = publish(tuned(tmp_path, "both", trials=9, **simulate(simulators=["training", "linear"], profile=5)))
    assert outcome.folder is not None
    said = json.loads((outcome.folder.path / "report.json").read_text())["predicted"]["simulators"]
    assert [one["name"] for one in said] == ["training", "linear"]
    assert sum(one["weight"] for one in said) == pytest.approx(1.0)
    assert "Simulators by weight" in outcome.folder.page.read_text()
    told = _cli_program.run(tmp_path, "explain", outcome.folder.path)
    assert told.returncode == 0, told.stderr
    shown = {words[0]: words[1] for line in told.stdout.splitlines() if len(words := line.split()) == 5}
    assert shown["linear"] == f"{said[1]['weight']:.2f}"
    emitted = _cli_program.run(tmp_path, "explain", outcome.folder.path, "--json")
    assert json.loads(emitted.stdout)["simulators"] == said


def test_the_flag_takes_several(tmp_path: Path) -> None:
    shown = _cli_program.run(
        tmp_path, "tune", "virtual", "--simulator", "training,linear:subset=5d-parallelism", "--max-trials", 20, "--dry-run", "--json"
    )
    assert shown.returncode == 0, shown.stderr
    document = json.loads(shown.stdout)
    named = [{"name": "training"}, {"name": "linear", "options": {"subset": "5d-parallelism"}}]
    assert document["campaign"]["simulate"]["simulators"] == named
    assert [launch["by"] for launch in document["launches"]].count("profiling") > 0


def test_the_bare_rule_of_the_paper_switches_on_the_error_alone(tmp_path: Path) -> None:
    adaptive = {"rule": "mape", "error": 0.01, "learn": False, "interval": 2, "least": 2}
    block = simulate(simulators=FOUR, profile=6, use="adaptive", adaptive=adaptive)
    outcome = tuned(tmp_path, "bare", trials=14, **{**block, "search": {"searcher": "hybrid-paper", "warm_start": False}})
    by = [trial.proposal.origin.by for trial in outcome.trials]
    assert by.count(By.PROFILING) == 6
    assert By.TOP in by, "regressions of six trials err by more than 1 %"


FAULTS = {
    "unknown": ({"simulators": ["training", "lineal"]}, "lineal"),
    "both": ({"simulator": "training", "simulators": ["linear"]}, "not both"),
    "twice": ({"simulators": ["linear", "linear"]}, "twice"),
    "option": ({"simulators": ["linear:subset"]}, "NAME:OPTION=VALUE"),
    "wrong option": ({"simulators": ["training", "linear:subset=7d"]}, "5d-parallelism"),
    "nobody": ({"learn_from": ["x.csv"]}, "need a simulator by name"),
    "no place": ({"simulators": ["linear", "training"], "learn_from": ["nowhere", "gone.csv"]}, "nowhere"),
}


@pytest.mark.parametrize(("block", "words"), FAULTS.values(), ids=FAULTS)
def test_bad_input_is_one_clear_error(block: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump({"system": "virtual", "simulate": block}))
    told = _cli_program.run(tmp_path, "tune", path)
    assert told.returncode == 2
    assert words in told.stderr
    assert "Traceback" not in told.stderr


def test_all_places_that_are_wrong_are_named_at_once(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("a,b\n1,2\n")
    setup = campaign(tmp_path, "x", **simulate(simulators=["linear", "training"], learn_from=["nowhere", str(tmp_path / "empty.csv")]))
    with pytest.raises(ConfigError) as error:
        StartingPoint.decide(setup, Folder(tmp_path / "x"))
    assert len(error.value.faults) == 2
    assert "step_s" in str(error.value)


def test_rows_of_a_table_are_read_as_the_knobs_read_them(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("tp,sp,ar,mbs,step_s,status\n2,true,full,3,1.5,ok\n4,false,none,1,,ok\n4,false,none,1,2.0,crashed\n")
    setup = campaign(tmp_path, "x")
    first, *failed = read_table(path, setup.space, setup.task)
    assert dict(first.config) == {"tp": 2, "sp": True, "ar": "full", "mbs": 3}, "3 is no value of mbs here, and still says something"
    assert first.measurement.metrics == {"step_s": 1.5}
    assert [trial.ok for trial in failed] == [False, False]


def test_one_simulator_may_have_options_in_either_form() -> None:
    one = build_campaign({"system": "virtual", "simulate": {"simulator": "linear", "options": {"subset": "ddp-aware"}}}, where="test")
    other = build_campaign({"system": "virtual", "simulate": {"simulators": ["linear:subset=ddp-aware"]}}, where="test")
    assert one.simulate.entries == other.simulate.entries
