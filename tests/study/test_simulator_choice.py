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
from autoscout.study import simulator_choice as foresight
from autoscout.study.assemble import Setup, inform, look, prepare, remember, searcher
from autoscout.study.campaign import build_campaign, read_campaign
from autoscout.study.folder import Folder

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


def informant(setup: Setup, folder: Path) -> str:
    home = Folder(folder / setup.name)
    return inform(setup, home, remember(setup, home)).simulator


def test_the_first_ready_simulator_that_understands_a_task_is_found() -> None:
    assert foresight.informant(LAYOUT, TRAINING) == "training"
    assert foresight.informant(ENGINE, SERVER) == "serving"
    assert foresight.informant(Space([Grid("x", 1, 4)]), TRAINING) == "", "it must read a knob"
    assert foresight.informant(LAYOUT, replace(TRAINING, workload={})) == "", "and know the job"
    assert foresight.informant(ENGINE, replace(SERVER, objective=Objective(metric="accuracy"))) == "", "and the metric"
    assert foresight.informant(LAYOUT, replace(TRAINING, objective=Objective(metric="reward", direction=Direction.MAXIMIZE))) == ""
    assert foresight.informant(LAYOUT, replace(TRAINING, objective=Objective(metric="peak_memory_gb"))) == ""


def test_only_simulators_that_need_no_trials_are_ready() -> None:
    ready = []
    for name in plugins.available("simulator"):
        if plugins.health("simulator", name).usable:
            ready += [name] * getattr(plugins.get("simulator", name), "ready", False)
    assert ready == ["serving", "training"]


def test_a_simulator_says_why_it_does_not_understand() -> None:
    model = plugins.get("simulator", "training")()
    assert "none of the knobs" in foresight.understands(model, Space([Grid("x", 1, 4)]), TRAINING)
    assert "model" in foresight.understands(model, LAYOUT, replace(TRAINING, workload={"global_batch": 256, "seq_len": 2048}))
    assert "accuracy" in foresight.understands(
        plugins.get("simulator", "serving")(), ENGINE, replace(SERVER, objective=Objective(metric="accuracy"))
    )


def test_a_study_is_informed_unless_it_says_none(tmp_path: Path) -> None:
    told = tuned(tmp_path, "told")
    assert (told.setup.simulator, told.setup.simulates) == ("training", "prior")
    assert tuned(tmp_path, "without", search={"warm_start": False}, simulate={"simulator": "none"}).setup.simulates == ""
    named = campaign(tmp_path, "named", simulate={"simulator": "training"})
    assert named.simulates == "prior"
    assert searcher(named).ask(3) == searcher(told.setup).ask(3) != searcher(campaign(tmp_path, "x")).ask(3)
    assert campaign(tmp_path, "x", simulate={"simulator": None}).simulates == ""


def test_it_is_kept_in_the_store_and_not_in_the_file(tmp_path: Path) -> None:
    setup = campaign(tmp_path, "new")
    assert informant(setup, tmp_path) == "training"
    assert not (tmp_path / "all.db").exists(), "looking writes nothing"
    result = tuned(tmp_path, "new")
    assert "simulat" not in (tmp_path / "new" / "campaign.yaml").read_text()
    with closing(SqlStore(str(tmp_path / "all.db"))) as store:
        (record,) = store.studies()
    assert foresight.read(record.spec) == "training"
    again = prepare(read_campaign(result.folder.campaign))
    assert look(again, result.folder).setup.simulator == "training", "for the report"


def test_resumed_equals_uninterrupted(tmp_path: Path) -> None:
    whole = tuned(tmp_path, "new", trials=7)
    tuned(tmp_path, "other", gpus=32)
    setup = campaign(tmp_path, "new", trials=7)
    home = Folder(tmp_path / "new")
    for count in range(1, 7):  # killed after so many trials
        resumed = inform(setup, home, remember(setup, home))
        asker = searcher(resumed, remember(setup, home))
        asker.tell(whole.trials[:count])
        assert asker.ask(1, setup.given)[0].config == whole.trials[count].config


def test_a_study_that_began_without_goes_on_without(tmp_path: Path) -> None:
    old = campaign(tmp_path, "old")
    with closing(SqlStore(str(tmp_path / "all.db"))) as store:  # as versions before this wrote it
        store.open(StudyRecord(name="old", task=old.task, space=old.space.fingerprint(), spec=old.spec))
    assert informant(old, tmp_path) == ""
    assert tuned(tmp_path, "old").setup.simulates == ""
    began = tuned(tmp_path, "b", search={"searcher": "random", "warm_start": False})
    assert began.setup.simulates == "", "never the adaptive evaluator unasked"
    assert tuned(tmp_path, "b", trials=8).setup.simulates == ""


def test_similar_studies_come_before_what_was_found_and_after_what_was_named(tmp_path: Path) -> None:
    tuned(tmp_path, "old")
    similar = campaign(tmp_path, "new", gpus=32)
    assert remember(similar, Folder(tmp_path / "new")) != ()
    assert informant(similar, tmp_path) == ""
    assert informant(campaign(tmp_path, "new", gpus=32, search={"warm_start": False}), tmp_path) == "training"
    assert informant(campaign(tmp_path, "new", gpus=32, simulate={"simulator": "training"}), tmp_path) == "training"
    by_hand = campaign(tmp_path, "new", gpus=32, search={"options": {"past": []}})
    assert informant(by_hand, tmp_path) == "", "a past given by hand is something to begin from"


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
    found = inform(setup, Folder(tmp_path / "plain"), ())
    assert found == setup
    assert searcher(found).ask(3) == searcher(prepare(build_campaign({**data, "simulate": {"simulator": "none"}}, where="test"))).ask(3)


def test_the_command_line_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    line = ["tune", "virtual", "-o", str(tmp_path), "-e", "new", "--dry-run"]
    sentence = "informed by the simulator training; --simulator none begins without"
    assert sentence in CliRunner().invoke(app, line).output
    assert "informed" not in CliRunner().invoke(app, [*line, "--simulator", "none"]).output
    assert "informed" not in CliRunner().invoke(app, [*line, "--simulator", "nobody"]).output
    told = json.loads(CliRunner().invoke(app, [*line, "--json"]).stdout)
    assert len(told["launches"]) == 4


def test_a_study_that_goes_on_and_its_explanation_say_so_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    folder = str(tuned(tmp_path, "old").folder.path)
    again = CliRunner().invoke(app, ["resume", folder]).output
    assert "informed by the simulator training" in again
    assert "--simulator none" not in again, "it is too late for that"
    assert CliRunner().invoke(app, ["explain", folder]).stdout.startswith("informed by the simulator training\n")
    told = json.loads(CliRunner().invoke(app, ["explain", folder, "--json"]).stdout)
    assert (told["informed_by"], told["learnt_from"]) == ("training", [])
    later = str(tuned(tmp_path, "new", gpus=32).folder.path)
    assert CliRunner().invoke(app, ["explain", later]).stdout.startswith("warm start from 6 trials of study old")
    told = json.loads(CliRunner().invoke(app, ["explain", later, "--json"]).stdout)
    assert (told["informed_by"], told["learnt_from"]) == ("", ["old"])
    (tmp_path / "all.db").unlink()
    told = json.loads(CliRunner().invoke(app, ["explain", later, "--json"]).stdout)
    assert (told["informed_by"], told["learnt_from"]) == ("", []), "without its record nothing is claimed, and nothing looked for"
