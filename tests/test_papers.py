"""The three systems of the papers as files that a newcomer runs: `examples/papers`, walked through in `docs/explanation/papers.md`."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import _cli_program
import _slurm as slurm
from _slurm import SlurmCluster
from autosched.arrivals.synthetic import Recipe, generate
from autosched.control import actions
from autosched.control.controller import Controller
from autosched.control.settings import build_settings
from autosched.events import events_of_trace
from autosched.live.slurm import LiveSlurm
from autoscout.core.journal import read_trials
from autoscout.core.trial import Fidelity

PAPERS = Path(__file__).parents[1] / "examples" / "papers"
WALK = Path(__file__).parents[1] / "docs" / "explanation" / "papers.md"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return Path(shutil.copytree(PAPERS, tmp_path / "papers"))


def test_autoscout_as_in_its_algorithm_1(here: Path) -> None:
    told = _cli_program.run(here, "tune", "autoscout.yaml")
    assert told.returncode == 0, told.stderr
    trials = read_trials(here / "autoscout_results" / "paper-autoscout" / "trials.jsonl")
    by = [trial.proposal.origin.by for trial in trials]
    assert by.count("profiling") == 8, "the regressions are trained before the search"
    answered = [trial for trial in trials if trial.measurement.fidelity is Fidelity.PREDICTED]
    assert answered, "then they answer the search, a step below the cluster's own answers"
    roles = {trial.proposal.origin.notes.get("arm", "") for trial in answered}
    assert {"sparse", "dense"} & roles, "which is the paper's, with its bandit"
    assert {"check", "top"} <= set(by), "and are checked, and left"
    story = json.loads(_cli_program.run(here, "explain", "autoscout_results/paper-autoscout", "--json").stdout)
    assert len(story["simulators"]) == 4
    assert sum(one["weight"] for one in story["simulators"]) == pytest.approx(1.0)


def test_deepspeed_style_search_from_deepspeeds_own_json(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    told = _cli_program.run(here, "tune", "deepspeed.yaml", "--rounds", "0")
    assert told.returncode == 0, told.stderr + told.stdout
    trials = read_trials(here / "autoscout_results" / "paper-deepspeed" / "trials.jsonl")
    assert {trial.proposal.origin.by for trial in trials} == {"default", "grid"}
    assert all(trial.ok for trial in trials)
    assert {trial.config["micro_batch"] for trial in trials} == {1, 4, 16}
    assert {trial.config["zero_stage"] for trial in trials} == {0, 1}
    assert (here / "autoscout_results" / "paper-deepspeed" / "best" / "run.sh").exists()


def test_autosched_as_in_its_figure_5_on_a_replayed_cluster(here: Path) -> None:
    said = yaml.safe_load((here / "autosched.yaml").read_text())
    said["tuning"]["predictor"] = "frequency"  # the same with and without XGBoost
    (here / "autosched.yaml").write_text(yaml.safe_dump(said))
    told = _cli_program.run(here, "sched", "control", "autosched.yaml", "--until", "2020-01-02T15:00")
    assert told.returncode == 0, told.stderr
    decisions = json.loads(_cli_program.run(here, "sched", "history", "autosched.yaml", "--days", "9999", "--json").stdout)["decisions"]
    made = [one for one in decisions if one["after"] != one["before"]]
    assert made, "on a busy cluster something is changed"
    steps = _cli_program.run(here, "sched", "explain", "autosched.yaml", str(made[0]["id"])).stdout
    for part in ("Generator: ", "Predictor: ", "Aggregator: ", "Causal model: ", "with 1 edges given", "Search: bluefin", "Answer: taken"):
        assert part in steps, steps


def test_the_walk_through_names_every_file() -> None:
    text = WALK.read_text()
    assert [path.name for path in PAPERS.iterdir() if path.suffix == ".yaml" and path.name not in text] == []


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    if reason := slurm.missing():
        pytest.skip(reason)
    options = {"PriorityType": "priority/multifactor", "PriorityWeightAge": 1000, "SchedulerParameters": "bf_interval=1,bf_max_job_test=50"}
    with SlurmCluster(tmp_path_factory.mktemp("slurm"), nodes=2, gpus=4, options=options) as made:
        yield made


@pytest.mark.slow
def test_autosched_on_a_real_slurm(cluster: SlurmCluster, tmp_path: Path) -> None:
    """A real slurmctld with jobs that wait, and the past of another week: decided by the whole loop, changed, and rolled back."""
    conf = cluster.environment["SLURM_CONF"]
    said: dict[str, Any] = yaml.safe_load((PAPERS / "autosched-slurm.yaml").read_text())
    said |= {"folder": str(tmp_path / "control"), "live": {"kind": "slurm", "conf": conf}, "verify": 5, "period": "30d"}
    said["tuning"] |= {"trials": 8, "predictor": "frequency"}
    controller = Controller(build_settings(said, "test"), LiveSlurm({"conf": conf, "timeout_s": 20.0, "reconfigure_s": 20.0}))
    now_s = time.time()
    past = generate(Recipe(profile="philly", jobs=300, days=4, load=1.2, cluster_gpus=8, start_s=0.0, seed=1))
    past = replace(past, submit_s=past.submit_s + now_s - 4 * 86_400.0).keep(past.gpus <= 8, "fits")
    controller.repository.add("lab", events_of_trace(past))
    for gpus in (4, 4, 1, 4, 2, 1):
        cluster.run("sbatch", "--parsable", f"--gpus-per-node={gpus}", "--nodes=1", "--time=60", "--wrap", "sleep 600")
    cluster.wait_until(lambda: "RUNNING" in cluster.jobs().values() and "PENDING" in cluster.jobs().values(), "some run and some wait")
    controller.tick()
    decided = controller.ledger.history()[0]
    for part in ("Generator: ", "arrivals replayed", "Predictor: ", "Aggregator: ", "Causal model: ", "with 1 edges given", "Answer: "):
        assert part in decided.words, decided.words
    model = controller.adviser.tuner.model
    assert model is not None
    assert ("priority_weight_job_size", "queue_s") in model.graph.edges
    before = controller.live.settings()["priority_weight_age"]
    wanted = 2_000 if before != 2_000 else 3_000
    asked = actions.propose(controller.ledger, {"priority_weight_age": wanted}, "test", time.time(), approved=True)
    controller.tick()
    assert controller.live.settings()["priority_weight_age"] == wanted
    actions.roll_back(controller.ledger, asked.id, "test", "enough", time.time())
    controller.tick()
    assert controller.live.settings()["priority_weight_age"] == before, "a roll-back is always allowed"
    controller.close()
