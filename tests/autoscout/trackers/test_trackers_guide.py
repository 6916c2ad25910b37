"""docs/guides/trackers.md as a newcomer follows it: every block in its order, in an empty folder, MLflow with a real server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from _services import BIN, ask, event_values, free_port, mlflow_runs, mlflow_server, serving, trackio_rows, wandb_runs

from _blocks import ROOT, blocks
from autoscout.core.journal import read_trials
from autoscout.core.trial import Status
from autoscout.study.campaign import read_campaign

pytestmark = pytest.mark.adapters
STATES = {Status.OK: ("FINISHED", "Complete"), Status.BOUNDED: ("KILLED", "Pruned")}
"""How MLflow and Optuna call a status: the machine decides which trials are stopped early."""
PAGE = ROOT / "docs" / "guides" / "trackers.md"


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """The folder after all blocks of the page, and the address of MLflow's server, which stands in for that of the page."""
    home = tmp_path_factory.mktemp("newcomer")
    with mlflow_server(tmp_path_factory.mktemp("mlflow")) as address:
        environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "TRACKIO_DIR": os.environ["TRACKIO_DIR"]}
        for block in blocks(PAGE):
            text = block.text.replace("http://127.0.0.1:5000", address)
            if block.file:
                (home / block.file).write_text(text)
            elif block.language in ("sh", "python"):
                words = ["sh", "-e", "-c", text] if block.language == "sh" else [sys.executable, "-c", text]
                done = subprocess.run(words, cwd=home, env=environment, capture_output=True, text=True, timeout=900)
                assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        yield home, address


def test_mlflow_shows_the_study_through_its_api(walk: tuple[Path, str]) -> None:
    home, address = walk
    runs = mlflow_runs(address)
    (study,) = [run for run in runs if "autoscout.trial" not in run["tags"]]
    trials = {int(run["tags"]["autoscout.trial"]): run for run in runs if "autoscout.trial" in run["tags"]}
    stored = {trial.number: trial for trial in read_trials(home / "autoscout_results/compress")}
    assert trials.keys() == stored.keys()
    for number, run in trials.items():
        assert run["params"] == {"level": str(stored[number].config["level"])}
        assert run["metrics"] == pytest.approx(dict(stored[number].measurement.metrics))
        assert run["tags"]["mlflow.parentRunId"] == study["info"]["run_id"]
        status = stored[number].measurement.status
        assert (run["tags"]["status"], run["info"]["status"]) == (status, STATES[status][0])
    assert study["params"]["budget.trials"] == "5"
    assert study["tags"]["verdict"]
    assert study["info"]["status"] == "FINISHED"
    history = ask(f"{address}/api/2.0/mlflow/metrics/get-history?run_id={study['info']['run_id']}&metric_key=best/wall_s")["metrics"]
    best = [point["value"] for point in sorted(history, key=lambda point: point.get("step", 0))]
    assert len(best) == len(stored)  # the first one is the default, which ran
    assert best == sorted(best, reverse=True)
    listed = ask(f"{address}/api/2.0/mlflow/artifacts/list?run_id={study['info']['run_id']}")["files"]
    assert {"report.html", "best"} <= {file["path"] for file in listed}


def test_tensorboard_trackio_and_wandb_show_it(walk: tuple[Path, str]) -> None:
    home, _ = walk
    folder = home / "autoscout_results/compress"
    numbers = {trial.number for trial in read_trials(folder)}
    (events,) = (folder / "tensorboard").iterdir()
    assert {int(path.name) for path in events.iterdir() if path.name.isdecimal()} == numbers
    tags = {value.tag for value in event_values(events / "0")}
    assert {"_hparams_/session_start_info", "_hparams_/session_end_info", "wall_s", "best/wall_s", "trial"} <= tags
    assert {number for number, _, _ in trackio_rows("autoscout")} >= numbers
    runs = wandb_runs(folder)
    studies = [run for name, run in runs.items() if "-" not in name]
    assert len(runs) == len(numbers) + 1
    assert studies[0]["config"]["budget.trials"] == 5
    assert len(studies[0]["history"]) == len(numbers)


def test_optuna_dashboard_opens_what_was_written(walk: tuple[Path, str], tmp_path: Path) -> None:
    home, _ = walk
    file, port = home / "autoscout_results/compress/study.db", free_port()
    words = [str(BIN / "optuna-dashboard"), "--host", "127.0.0.1", "--port", str(port), f"sqlite:///{file}"]
    with serving(words, f"http://127.0.0.1:{port}/api/studies", tmp_path):
        (summary,) = ask(f"http://127.0.0.1:{port}/api/studies")["study_summaries"]
        study = ask(f"http://127.0.0.1:{port}/api/studies/{summary['study_id']}")
    trials = read_trials(home / "autoscout_results/compress")
    assert summary["study_name"] == "compress"
    assert study["objective_names"] == ["wall_s"]
    assert [trial["state"] for trial in study["trials"]] == [STATES[trial.measurement.status][1] for trial in trials]
    pairs = [(shown, trial) for shown, trial in zip(study["trials"], trials, strict=True) if trial.ok]
    assert [shown["values"][0] for shown, _ in pairs] == pytest.approx([trial.measurement.metrics["wall_s"] for _, trial in pairs])
    assert all(len(shown["constraints"]) == 1 and shown["constraints"][0] < 0 for shown, _ in pairs), "the ratio is kept"


def test_the_other_way_a_study_of_optunas_is_past_knowledge(walk: tuple[Path, str]) -> None:
    home, _ = walk
    trials = read_trials(home / "autoscout_results/continued")
    assert {tuple(trial.config) for trial in trials} == {("level",)}, "its space is that of the file"
    campaign = read_campaign(home / "autoscout_results/continued/campaign.yaml")
    assert campaign.space == {"knobs": {"level": {"range": [1, 9], "default": 6}}}
    assert len(list(home.glob("trials.parquet"))) == 1
