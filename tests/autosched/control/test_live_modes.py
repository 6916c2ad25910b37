"""AutoSched's loop in the controller of a live scheduler: its parts, goals and causes of an operator, steps in words."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

import _cli_program
from autosched.control.controller import Controller
from autosched.control.explain import explanation
from autosched.control.settings import build_settings
from autosched.live.replay import Replay
from autosched.tune.modes import LIVE, MODES
from autosched.tune.tuner import Tuner
from autoscout.core.errors import ConfigError

BEGIN_S = 1_577_664_406 + 3 * 86_400
HOUR_S = 3_600.0
LIVE_TRACE = {"kind": "replay", "trace": "synthetic:philly:900:5:1", "cluster": "3x8", "scheduler": "tiresias", "start": str(BEGIN_S)}


def controller(folder: Path, **tuning: Any) -> Controller:
    given = {"cluster": "toy", "live": LIVE_TRACE, "folder": str(folder), "mode": "apply", "look": "20m", "watch": 0, "tuning": tuning}
    return Controller(build_settings(given, "test"), Replay({key: value for key, value in LIVE_TRACE.items() if key != "kind"}))


def test_paper_mode_runs_every_part_of_figure_5(tmp_path: Path) -> None:
    run = controller(tmp_path, mode="paper", trials=12, predictor="frequency")
    assert isinstance(run.adviser.tuner, Tuner), "the class that the replayed loop uses"
    run.run(until_s=BEGIN_S + 3 * HOUR_S)
    model = run.adviser.tuner.model
    assert model is not None
    assert len(model) > 60, "60 random settings of the offline phase, and what the decisions simulated"
    entries = [entry for entry in run.ledger.history() if entry.kind == "hourly" and "Search: " in entry.words]
    assert entries, "on a busy cluster something is looked for"
    told = explanation(entries[-1])
    parts = (
        "1. Generator: ",
        "arrivals replayed from",
        "Predictor: frequency",
        "Aggregator: ",
        "Causal model: ",
        "Search: bluefin tried",
        "Answer: ",
    )
    assert [part for part in parts if part not in told] == [], told
    assert sum("rejected by their prediction" in entry.words for entry in entries), "the causal model takes part in the search"


def test_causes_of_an_operator_shape_the_graph(tmp_path: Path) -> None:
    edges = {"edges": ["queues -> long_queue_s"], "no_edges": ["priority -> preemptions"]}
    causes = {"metrics": ["queue_s", "preemptions", "long_queue_s"], **edges}
    run = controller(tmp_path, mode="paper", goal="queue_s", trials=4, predictor="frequency", causes=causes)
    run.run(until_s=BEGIN_S + HOUR_S)
    model = run.adviser.tuner.model
    assert model is not None
    assert model.graph.objective == "queue_s"
    assert model.metrics == ("preemptions", "long_queue_s"), "the goal is no cause of itself"
    assert ("queues", "long_queue_s") in model.graph.edges
    assert ("priority", "preemptions") not in model.graph.edges
    assert "1 edges given and 1 ruled out" in model.graph.method


def test_an_operator_defines_metrics_by_formulas(tmp_path: Path) -> None:
    own = {"wait_of_small": "mean(wait[gpus <= 2])", "served": "maximize share(wait < 600)"}
    causes = {"metrics": ["served", "idle_gpus"], "edges": ["queues -> served"]}
    tuning = {
        "mode": "paper", "goal": "wait_of_small", "metrics": own, "causes": causes, "limits": ["served>=0.5x"], "trials": 4,
        "predictor": "frequency",
    }  # fmt: skip
    path = tmp_path / "control.yaml"
    path.write_text(yaml.safe_dump({"cluster": "toy", "live": LIVE_TRACE, "look": "20m", "watch": 0, "tuning": tuning}))
    end = datetime.fromtimestamp(BEGIN_S + 3 * HOUR_S, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    told = _cli_program.run(tmp_path, "sched", "control", path, "--until", end)
    assert told.returncode == 0, told.stderr
    history = _cli_program.run(tmp_path, "sched", "history", path, "--days", "9999", "--json")
    entries = [entry for entry in json.loads(history.stdout)["decisions"] if "Search: " in entry["words"]]
    assert entries, "on a busy cluster something is looked for"
    run = controller(tmp_path / "again", **tuning)
    run.run(until_s=BEGIN_S + HOUR_S)
    model = run.adviser.tuner.model
    assert model is not None
    assert (model.graph.objective, model.metrics) == ("wait_of_small", ("served", "idle_gpus"))
    assert ("queues", "served") in model.graph.edges


def test_what_an_operator_says_goes_over_the_mode() -> None:
    def mode(**tuning: Any) -> Any:
        return build_settings({"cluster": "x", "live": {"kind": "replay"}, "tuning": tuning}, "test").tuning.adviser("tiresias").tuner.mode

    assert mode() == LIVE
    published = mode(mode="paper")
    assert published == MODES["paper"]
    assert (published.generators[0].smooth, published.watch_s, published.predictor.model) == (True, 300.0, "xgboost"), "as published"
    changed = mode(mode="paper", trials=9, least_gain=1.2, horizon=86_400 * 2)
    assert (changed.search.trials, changed.least_gain, changed.watch_gain) == (9, 1.2, 1.2)
    assert changed.cap_s >= changed.horizon_s
    assert [each.back_s for each in mode(back=["2h", "1d"], draws=2).generators] == [7_200.0, 86_400.0]


FAULTS = {
    "mode": ({"mode": "papers"}, "paper"),
    "goal": ({"goal": "queues"}, "queue_s"),
    "metric": ({"mode": "paper", "causes": {"metrics": ["queue"]}}, "queue_s"),
    "edge": ({"mode": "paper", "causes": {"edges": ["queues queue_s"]}}, "FROM -> TO"),
    "end": ({"mode": "paper", "causes": {"edges": ["queues -> time_s"]}}, "intermediate metric"),
    "no model": ({"causes": {"edges": ["queues -> queue_s"]}}, "mode: paper"),
    "back": ({"mode": "paper", "back": ["1h"]}, "similar hour"),
    "formula": ({"goal": "mine", "metrics": {"mine": "mean(wiat)"}}, "control.yaml:11: tuning.metrics.mine: column 6"),
    "formula of a taken name": ({"metrics": {"queue_s": "mean(wait)"}}, "of this name already"),
    "no text": ({"metrics": {"mine": 3}}, "must be text"),
    "limit": ({"limits": ["queue_s<600s"]}, "tuning.limits"),
    "limit on nobody": ({"metrics": {"mine": "mean(wait)"}, "limits": ["mime<=600"]}, "mine"),
    "metric of nobody": ({"mode": "paper", "metrics": {"mine": "mean(wait)"}, "causes": {"metrics": ["min"]}}, "mine"),
}


@pytest.mark.parametrize(("tuning", "words"), FAULTS.values(), ids=FAULTS)
def test_bad_input_is_one_clear_error(tuning: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = tmp_path / "control.yaml"
    path.write_text(yaml.safe_dump({"cluster": "toy", "live": LIVE_TRACE, "tuning": tuning}))
    told = _cli_program.run(tmp_path, "sched", "control", path)
    assert told.returncode == 2
    assert words in told.stderr
    assert "Traceback" not in told.stderr


def test_faults_of_formulas_goal_and_causes_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        controller(tmp_path, mode="paper", goal="fast", metrics={"a": "mean(wat)", "b": "max"}, causes={"edges": ["queues -> c"]})
    assert {fault.field for fault in caught.value.faults} == {"tuning.goal", "tuning.metrics.a", "tuning.metrics.b", "tuning.causes.edges"}


def test_two_faults_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        controller(tmp_path, mode="paper", goal="fast", causes={"edges": ["queues -> nothing"]})
    assert len(caught.value.faults) == 2


def test_an_edge_from_nowhere_is_refused_when_the_knobs_are_known(tmp_path: Path) -> None:
    run = controller(tmp_path, mode="paper", trials=2, predictor="frequency", causes={"edges": ["quues -> queue_s"]})
    run.run(until_s=BEGIN_S + HOUR_S)
    assert any("begins at no knob" in entry.words for entry in run.ledger.history())
