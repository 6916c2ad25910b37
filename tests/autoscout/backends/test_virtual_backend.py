from __future__ import annotations

import json
import pickle
import subprocess
from pathlib import Path

import pytest

from _cli_program import run
from autoscout.backends.virtual import VirtualBackend
from autoscout.core import plugins
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.launch import Cleanliness
from autoscout.core.protocols import Backend
from autoscout.core.seeds import stream
from autoscout.core.task import Direction
from autoscout.core.trial import Fidelity, Proposal, Status
from autoscout.evaluate.profiler import Profiler
from autoscout.evaluate.virtual import VirtualEvaluator, VirtualOptions
from autoscout.execute.inline import InlineExecutor
from autoscout.simulators.training import TrainingModel

SERVING = {"workload": {"input_tokens": 512, "output_tokens": 64, "concurrency": 32}, "hardware": {"gpus": "4xH100"}}
TRAINING = {"workload": {"model": "llama-3.2-3b", "global_batch": 96}, "hardware": {"gpus": "8xA100-80+4xA40"}}


def test_it_is_a_backend() -> None:
    assert isinstance(plugins.get("backend", "virtual")(), Backend)


@pytest.mark.parametrize("given", [{}, SERVING, TRAINING])
def test_the_default_and_drawn_configurations_can_be_measured(given: dict[str, object]) -> None:
    backend = VirtualBackend()
    task = backend.task(given)
    space = backend.space(task)
    with InlineExecutor() as executor:
        profiler = Profiler(backend, executor, task, space)
        configs = [space.default(), *(space.sample(stream(7, seed)) for seed in range(5))]
        answers = profiler.evaluate([Proposal(config=config) for config in configs])
    assert all(answer.status in (Status.OK, Status.OOM_START) for answer in answers)
    assert any(answer.ok for answer in answers)
    for answer in answers:
        assert answer.fidelity is Fidelity.SIMULATED
        assert answer.conditions["virtual"] == 1.0
        assert answer.conditions["virtual_cost_s"] > answer.cost_s
    assert backend.fidelity(task) is Fidelity.SIMULATED


def test_the_workload_decides_what_is_served_and_which_way_is_better() -> None:
    backend = VirtualBackend()
    assert backend.task(SERVING).objective.direction is Direction.MAXIMIZE
    assert backend.task(TRAINING).objective.metric == "step_s"
    assert "max_num_seqs" in backend.space(backend.task(SERVING)).knobs
    assert "tp_comm" in backend.space(backend.task(TRAINING)).knobs


def test_repeats_differ_a_little_and_launches_travel() -> None:
    backend = VirtualBackend()
    task = backend.task({})
    config = backend.space(task).default()
    values = []
    for seed in (1, 2, 1):
        launch = pickle.loads(pickle.dumps(backend.render(config, task, seed)))
        assert launch.call is not None
        values.append(launch.call().metrics["step_s"])
    assert values[0] == values[2]
    assert values[0] != values[1]
    assert values[0] == pytest.approx(values[1], rel=0.2)


def test_bad_input_is_explained_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        VirtualBackend().task({"workload": {"model": "no-such"}, "hardware": {"gpus": "8xAbacus"}})
    assert len(caught.value.faults) == 2
    with pytest.raises(ConfigError, match="Did you mean 'workload'"):
        VirtualBackend().task({"wrkload": 3})


def test_the_hand_over_says_that_it_is_simulated(tmp_path: Path) -> None:
    backend = VirtualBackend()
    task = backend.task({})
    files = backend.export(Config(tp=2), task)
    script = tmp_path / "run.sh"
    script.write_text(files["run.sh"])
    assert "never measured" in files["run.sh"]
    assert '"tp": 2' in subprocess.run(["sh", str(script)], capture_output=True, text=True, check=True).stdout


def test_a_mixed_cluster_has_knobs_for_its_kinds() -> None:
    backend = VirtualBackend()
    space = backend.space(backend.task(TRAINING))
    assert {"a100", "a40", "a40_share", "stages_inner"} <= space.knobs.keys()
    drawn = [space.sample(stream(3, seed)) for seed in range(50)]
    for config in drawn:
        assert config["tp"] * config["pp"] * config["cp"] * config["dp"] == config["a100"] + config["a40"]
        assert ("a40_share" in config) == (config["a40"] == 4)
        even = config.get("a40_share", 1.0) == 1.0
        assert 96 % (config["dp"] * config["mbs"]) == 0 or not even
    assert {config["a40"] for config in drawn} == {0, 4}
    assert "a40_share" not in backend.space(backend.task({})).knobs


def test_a_knob_that_does_nothing_wins_nothing() -> None:
    """Without replicas no gradients are exchanged: whatever the size of the buckets, the virtual cluster errs in the same way."""
    task = VirtualBackend().task({"hardware": {"gpus": "4xA100-80"}})
    simulator = TrainingModel()
    evaluator = VirtualEvaluator(simulator, task, VirtualOptions(noise=0.0, surprise=0.5))
    space = VirtualBackend().space(task)
    start = space.project({**space.default(), "tp": 4, "dp": 1}, Config(tp=4, dp=1))
    assert "ddp_bucket" in start
    near = [Config({**start, name: value}) for name in start for value in space.knobs[name].values]
    idle = list(dict.fromkeys(config for config in near if not space.check(config)))
    predicted = simulator.predict(idle, task).value.tolist()
    answers = [one.metrics["step_s"] for one in evaluator.evaluate([Proposal(config=config) for config in idle]) if one.ok]
    assert len(set(predicted)) < len(set(idle)), "else the test shows nothing"
    assert len(set(answers)) <= len(set(predicted))


def test_a_simulated_study_calls_nothing_measured_or_disturbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine every answer of the simulator was "disturbed by other work", and its contributions were "measured"."""
    monkeypatch.setattr(Cleanliness, "is_dirty", lambda self, conditions: True)
    words = ("--hardware", "gpus=8xH100", "--max-trials", "6", "--set", "tp=1", "--set", "pp=1", "--set", "mbs=1")
    done = run(tmp_path, "tune", "virtual", *words)
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr
    assert "simulated, not measured" in said
    assert "disturbed" not in said
    (folder,) = (tmp_path / "autoscout_results").iterdir()
    report = json.loads((folder / "report.json").read_text())
    assert report["contributions"], "else the test shows nothing"
    assert {one["source"] for one in report["contributions"]} <= {"simulated", "unknown"}
