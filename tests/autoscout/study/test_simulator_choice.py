"""Which simulator informs a study that names none, that it is said, and that it never changes afterwards."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from _studies import campaign, tuned
from autoscout.cli.main import app
from autoscout.core import plugins
from autoscout.core.errors import ConfigError
from autoscout.core.protocols import StudyRecord
from autoscout.core.task import Direction, Objective, Task
from autoscout.space import Choice, Grid, Space
from autoscout.store.sql.store import SqlStore
from autoscout.study.assemble import build_searcher, build_simulator, known_good, look
from autoscout.study.campaign import build_campaign, read_campaign
from autoscout.study.folder import Folder
from autoscout.study.setup import Setup, prepare
from autoscout.study.start import StartingPoint, find_simulator, understands

TRAINING = Task(
    system="job",
    workload={"model": "llama-2-13b", "global_batch": 256, "seq_len": 2048},
    hardware={"gpus": "16xA100-80"},
    objective=Objective(metric="step_s"),
)
LAYOUT = Space([Choice("tensor_parallel", [1, 2, 4, 8]), Grid("micro_batch_size", values=[1, 2, 4])])
SERVER = Task(
    system="vllm",
    workload={"model": "llama-3.1-8b", "input_tokens": 512, "output_tokens": 64, "concurrency": 8},
    hardware={"gpus": 4, "gpu": "H100"},
    objective=Objective(metric="output_throughput", direction=Direction.MAXIMIZE),
)
ENGINE = Space([Choice("tensor_parallel_size", [1, 2, 4]), Grid("max_num_seqs", values=[4, 64])])


def chosen(setup: Setup, folder: Path) -> StartingPoint:
    return StartingPoint.decide(setup, Folder(folder / setup.name))


def test_the_first_ready_simulator_that_understands_a_task_is_found() -> None:
    assert find_simulator(LAYOUT, TRAINING) == "training"
    assert find_simulator(ENGINE, SERVER) == "serving"
    assert find_simulator(Space([Grid("x", 1, 4)]), TRAINING) == "", "it must read a knob"
    assert find_simulator(LAYOUT, replace(TRAINING, workload={})) == "", "and know the job"
    assert find_simulator(ENGINE, replace(SERVER, objective=Objective(metric="accuracy"))) == "", "and the metric"
    assert find_simulator(LAYOUT, replace(TRAINING, objective=Objective(metric="reward", direction=Direction.MAXIMIZE))) == ""
    assert find_simulator(LAYOUT, replace(TRAINING, objective=Objective(metric="peak_memory_gb"))) == ""


def test_only_simulators_that_need_no_trials_are_ready() -> None:
    usable = [name for name in plugins.available("simulator") if plugins.health("simulator", name).usable]
    able = {name for name in usable if plugins.get("simulator", name).needs_no_trials}
    assert {"serving", "training"} <= able
    assert not able & {"linear", "log-linear", "boosted", "residual"}


def test_a_simulator_says_why_it_does_not_understand() -> None:
    model = plugins.get("simulator", "training")()
    assert "none of the knobs" in understands(model, Space([Grid("x", 1, 4)]), TRAINING)
    assert "model" in understands(model, LAYOUT, replace(TRAINING, workload={"global_batch": 256, "seq_len": 2048}))
    assert "accuracy" in understands(plugins.get("simulator", "serving")(), ENGINE, replace(SERVER, objective=Objective(metric="accuracy")))


def test_a_study_is_informed_unless_it_says_none(tmp_path: Path) -> None:
    told = tuned(tmp_path, "told")
    assert (told.start.simulator, told.start.use) == ("training", "prior")
    assert tuned(tmp_path, "without", search={"warm_start": False}, simulate={"simulator": "none"}).start.use == ""
    named = campaign(tmp_path, "named", simulate={"simulator": "training"})
    start = chosen(named, tmp_path)
    assert (start.use, start.automatic) == ("prior", False)
    plain = build_searcher(campaign(tmp_path, "x"), StartingPoint()).ask(3)
    assert build_searcher(named, start).ask(3) == build_searcher(told.setup, told.start).ask(3) != plain
    assert chosen(campaign(tmp_path, "x", simulate={"simulator": None}), tmp_path).use == ""


def test_it_is_kept_in_the_store_and_not_in_the_file(tmp_path: Path) -> None:
    setup = campaign(tmp_path, "new")
    assert chosen(setup, tmp_path).simulator == "training"
    assert not (tmp_path / "all.db").exists(), "looking writes nothing"
    outcome = tuned(tmp_path, "new")
    assert outcome.folder is not None
    assert "simulat" not in (tmp_path / "new" / "campaign.yaml").read_text()
    with closing(SqlStore(str(tmp_path / "all.db"))) as store:
        (record,) = store.studies()
    assert StartingPoint.from_record(setup, record).simulator == "training"
    again = prepare(read_campaign(outcome.folder.campaign))
    assert look(again, outcome.folder).start.simulator == "training", "for the report"


def test_resumed_equals_uninterrupted(tmp_path: Path) -> None:
    whole = tuned(tmp_path, "new", trials=7)
    tuned(tmp_path, "other", gpus=32)
    setup = campaign(tmp_path, "new", trials=7)
    for count in range(1, 7):  # killed after this many trials
        searcher = build_searcher(setup, chosen(setup, tmp_path))
        searcher.tell(whole.trials[:count])
        assert searcher.ask(1, setup.given)[0].config == whole.trials[count].config


def test_a_study_that_began_without_resumes_without(tmp_path: Path) -> None:
    old = campaign(tmp_path, "old")
    with closing(SqlStore(str(tmp_path / "all.db"))) as store:  # as versions before this wrote it
        store.open(StudyRecord(name="old", task=old.task, space=old.space.fingerprint(), spec=old.spec))
    assert chosen(old, tmp_path).simulator == ""
    assert tuned(tmp_path, "old").start.use == ""
    began = tuned(tmp_path, "b", search={"searcher": "random", "warm_start": False})
    assert began.start.use == "", "never the adaptive evaluator unasked"
    assert tuned(tmp_path, "b", trials=8).start.use == ""


def test_similar_studies_come_before_what_was_found_and_after_what_was_named(tmp_path: Path) -> None:
    tuned(tmp_path, "old")
    similar = chosen(campaign(tmp_path, "new", gpus=32), tmp_path)
    assert similar.past != ()
    assert similar.simulator == ""
    assert chosen(campaign(tmp_path, "new", gpus=32, search={"warm_start": False}), tmp_path).simulator == "training"
    assert chosen(campaign(tmp_path, "new", gpus=32, simulate={"simulator": "training"}), tmp_path).simulator == "training"
    by_hand = campaign(tmp_path, "new", gpus=32, search={"options": {"past": []}})
    assert chosen(by_hand, tmp_path).simulator == "", "a past given by hand is something to start from"


@pytest.mark.parametrize("block", [{"options": {"stack": "fsdp"}}, {"use": "adaptive"}, {"adaptive": {"interval": 2}}])
def test_what_only_a_named_simulator_can_do_needs_its_name(tmp_path: Path, block: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="by name"):
        campaign(tmp_path, "x", simulate=block)


def test_a_backend_that_no_simulator_knows_is_searched_as_before(tmp_path: Path) -> None:
    data = {
        "system": "command",
        "name": "plain",
        "workload": {"command": "echo {x} {y}", "metrics": {"x": {"regex": "([0-9]+)"}}},
        "goal": {"metric": "x", "direction": "minimize"},
        "space": {"knobs": {"x": {"range": [0, 9]}, "y": {"range": [0, 9]}}},
    }
    setup = prepare(build_campaign(data, where="test"))
    found = chosen(setup, tmp_path)
    assert found == StartingPoint()
    without = prepare(build_campaign({**data, "simulate": {"simulator": "none"}}, where="test"))
    assert build_searcher(setup, found).ask(3) == build_searcher(without, chosen(without, tmp_path)).ask(3)


def test_the_command_line_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    line = ["tune", "virtual", "-o", str(tmp_path), "-e", "new", "--dry-run"]
    sentence = "Using the `training` simulator as a prior (disable with --simulator none)."
    assert sentence in CliRunner().invoke(app, line).output
    assert "simulator as a prior" not in CliRunner().invoke(app, [*line, "--simulator", "none"]).output
    assert "simulator as a prior" not in CliRunner().invoke(app, [*line, "--simulator", "nobody"]).output
    told = json.loads(CliRunner().invoke(app, [*line, "--json"]).stdout)
    assert len(told["launches"]) == 4


def test_a_study_that_goes_on_and_its_explanation_say_so_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    folder = str(tmp_path / tuned(tmp_path, "old").setup.name)
    again = CliRunner().invoke(app, ["resume", folder]).output
    assert "Using the `training` simulator as a prior." in again
    assert "--simulator none" not in again, "it is too late for that"
    assert CliRunner().invoke(app, ["explain", folder]).stdout.startswith("Using the `training` simulator as a prior.\n")
    told = json.loads(CliRunner().invoke(app, ["explain", folder, "--json"]).stdout)
    assert (told["informed_by"], told["learnt_from"]) == ("training", [])
    later = str(tmp_path / tuned(tmp_path, "new", gpus=32).setup.name)
    assert CliRunner().invoke(app, ["explain", later]).stdout.startswith("Warm start from 6 trials of study old")
    told = json.loads(CliRunner().invoke(app, ["explain", later, "--json"]).stdout)
    assert (told["informed_by"], told["learnt_from"]) == ("", ["old"])
    (tmp_path / "all.db").unlink()
    told = json.loads(CliRunner().invoke(app, ["explain", later, "--json"]).stdout)
    assert (told["informed_by"], told["learnt_from"]) == ("", []), "without its record nothing is claimed, and nothing looked for"


def test_hints_that_are_unlikely_to_fit_are_left_out(tmp_path: Path) -> None:
    """A 70B model on 32 GPUs: the smallest other layouts would run out of memory, and half of the first trials would be lost."""
    checkout = tmp_path / "Megatron-LM"
    checkout.mkdir()
    (checkout / "pretrain_gpt.py").write_text("")
    description = {
        "system": "megatron",
        "workload": {"checkout": str(checkout), "model": "llama-3.1-70b", "global_batch": 256, "sequence": 4096},
        "hardware": {"gpus": "32xH100", "cores": 8},
    }
    setup = prepare(build_campaign(description, where="test"))
    start = StartingPoint.decide(setup)
    simulator = build_simulator(setup, start)
    assert setup.hints
    kept = known_good(setup, start)
    chances = simulator.predict(list(setup.hints), setup.task).feasible
    assert min(chances) < 0.5, "else the test shows nothing"
    assert len(kept) < len(setup.hints)
    predicted = simulator.predict(kept, setup.task)
    assert all(predicted.feasible >= 0.5)
    assert list(predicted.value) == sorted(predicted.value, reverse=True), "the best first"
