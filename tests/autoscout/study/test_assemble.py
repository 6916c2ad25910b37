from __future__ import annotations

from pathlib import Path

import pytest

from autoscout.core.errors import AutoScoutError
from autoscout.core.trial import Fidelity
from autoscout.study.assemble import run
from autoscout.study.campaign import build_campaign
from autoscout.study.folder import Folder
from autoscout.study.ledger import Ledger
from autoscout.study.outcome import Outcome
from autoscout.study.setup import prepare
from autoscout.study.stores import without_password


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("postgresql://me:secret@host:5432/db", "postgresql://me@host:5432/db"),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
        ("postgresql://:secret@host/db", "postgresql://@host/db"),
        ("postgresql://host/db?password=secret&sslmode=require", "postgresql://host/db?sslmode=require"),
        ("postgresql://host/db?user=me&password=secret", "postgresql://host/db?user=me"),
        ("postgresql+psycopg://me:se%40cret@[::1]:5432/db", "postgresql+psycopg://me@[::1]:5432/db"),
    ],
)
def test_passwords_are_never_written_down(url: str, kept: str) -> None:
    assert without_password(url) == kept


def test_a_backend_may_hint_at_good_configurations() -> None:
    pytest.importorskip("xllamacpp")
    plain = prepare(build_campaign({"system": "llamacpp", "workload": {"concurrency": 6}}, where="test"))
    assert [config["parallel"] for config in plain.first] == [1, 6], "as a library; a slot for every client"
    pinned = prepare(build_campaign({"system": "llamacpp", "workload": {"concurrency": 4}, "set": {"parallel": 2}}, where="test"))
    assert pinned.first == (), "a hint that the pinned knobs rule out is dropped"
    given = prepare(build_campaign({"system": "llamacpp", "workload": {"concurrency": 4}, "first": [{"threads": 1}]}, where="test"))
    assert given.first[0]["threads"] == 1, "the user's own come first"


def test_the_resolved_campaign_stands_for_the_same_task(tmp_path: Path) -> None:
    data = {
        "system": "command",
        "store": "postgresql://me:secret@host/db",
        "workload": {"command": "echo {x}", "metrics": {"x": {"regex": "([0-9]+)"}}},
        "goal": {"metric": "x", "direction": "minimize"},
        "space": {"knobs": {"x": {"range": [0, 3]}}},
    }
    setup = prepare(build_campaign(data, where="test"))
    again = prepare(build_campaign(setup.spec, where="test"))
    assert again.task == setup.task
    assert again.name == setup.name
    assert "secret" not in str(setup.spec)


def simulating(folder: Path, searcher: str, **simulate: object) -> Outcome:
    data = {
        "system": "virtual",
        "budget": {"trials": 8},
        "search": {"searcher": searcher},
        "simulate": {"simulator": "training", **simulate},
        "execute": {"executor": "inline"},
        "finals": {"finalists": 1, "rounds": 2},
    }
    setup = prepare(build_campaign(data, where="test"))
    return run(setup, Folder(folder))


def test_a_searcher_that_can_is_told_what_the_simulator_predicts(tmp_path: Path) -> None:
    result = simulating(tmp_path / "a", "hybrid")
    assert result.start.use == "prior"
    assert {trial.measurement.fidelity for trial in result.trials} == {Fidelity.SIMULATED}, "a virtual cluster never measures"
    search = [trial for trial in result.trials if trial.proposal.repeat == 0]
    assert len(search) == 8
    default, second = (trial.measurement.metrics["step_s"] for trial in search[:2])
    assert second < default, "the first proposal is the simulator's favourite"


def test_for_other_searchers_the_simulator_answers_until_it_is_measured(tmp_path: Path) -> None:
    result = simulating(tmp_path / "a", "random", adaptive={"interval": 1})
    assert result.start.use == "adaptive"
    assert {trial.measurement.fidelity for trial in result.trials} == {Fidelity.SIMULATED, Fidelity.PREDICTED}
    checked = [trial for trial in result.trials if trial.proposal.repeat < 0]
    assert checked
    assert all(trial.measurement.fidelity is Fidelity.SIMULATED and "virtual" in trial.measurement.conditions for trial in checked)
    assert any("predicted" in trial.measurement.conditions for trial in checked)
    more = prepare(build_campaign({**result.setup.spec, "budget": {"trials": 10}}, where="test"))
    again = run(more, result.folder)
    assert again.trials[: len(result.trials)] == result.trials
    assert Ledger(again.trials).counted == 10


@pytest.mark.parametrize(
    ("simulate", "message"),
    [
        ({"simulator": "nobody"}, "unknown simulator"),
        ({"options": {"stak": "x"}}, "stack"),
        ({"use": "prior"}, "hybrid"),
        ({"adaptive": {"intervall": 2}}, "interval"),
        ({"simulator": "serving"}, "output_tokens"),
    ],
)
def test_a_simulator_that_does_not_fit_leaves_no_trace(tmp_path: Path, simulate: dict[str, object], message: str) -> None:
    with pytest.raises(AutoScoutError, match=message):
        simulating(tmp_path / "a", "random", **simulate)
    assert not (tmp_path / "a").exists()
