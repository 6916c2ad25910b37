from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from autosched.tune.causal import graph as graphs
from autosched.tune.causal.graph import Graph, learn_graph
from autosched.tune.causal.model import CausalModel
from autosched.tune.causal.picture import dot, svg
from autoscout.core.config import Config
from autoscout.space import Choice, Grid, Space

SPACE = Space(
    [
        Grid("lease", 1, 20, default=10),
        Grid("queues", 1, 6, default=2),
        Choice("order", ["a", "b", "c"]),
        Grid("idle_knob", 1, 9, default=5),
    ]
)


def toy(config: Config, load: float = 1.0) -> dict[str, float]:
    """Short leases cost preemptions, long ones queueing; `order` c is bad for queueing; one knob does nothing."""
    lease = float(config["lease"])  # type: ignore[arg-type]
    queue = load * (20.0 + 4.0 * lease + 100.0 * (config["order"] == "c"))
    preemptions = 40.0 / lease + float(config["queues"])  # type: ignore[arg-type]
    return {"queue_s": queue, "preemptions": preemptions, "time_s": load * 100.0 + queue + load * 6.0 * preemptions}


def runs(number: int, seed: int = 0, load: float = 1.0) -> list[tuple[Config, dict[str, float]]]:
    rng = np.random.default_rng(seed)
    found = [SPACE.sample(rng) for _ in range(number)]
    return [(config, toy(config, load)) for config in found if config is not None]


def fitted(number: int = 150) -> CausalModel:
    model = CausalModel(SPACE, ("queue_s", "preemptions"), "time_s")
    model.add(runs(number), toy(SPACE.default()))
    model.learn()
    return model


def test_predictions_are_near_and_follow_the_workload() -> None:
    model = fitted()
    for load in (1.0, 3.0):
        test = runs(60, seed=9, load=load)
        found = model.predict([config for config, _ in test], toy(SPACE.default(), load))
        errors = [abs(row["time_s"] - true["time_s"]) / true["time_s"] for row, (_, true) in zip(found, test, strict=True)]
        assert np.mean(errors) < 0.12


def test_a_sweep_shows_the_best_value() -> None:
    swept = fitted().what_if(Config(lease=20, queues=2, order="a", idle_knob=5), ["lease"], toy(SPACE.default()))["lease"]
    best = min(swept, key=lambda pair: pair[1])[0]
    true = min((value for value, _ in swept), key=lambda value: toy(Config(lease=value, queues=2, order="a"))["time_s"])
    assert abs(float(best) - float(true)) <= 5  # type: ignore[arg-type]


def check_edges(graph: Graph) -> None:
    assert ("lease", "preemptions") in graph.edges
    assert ("queues", "preemptions") in graph.edges
    assert ("lease", "queue_s") in graph.edges
    assert ("idle_knob", "preemptions") not in graph.edges
    assert ("idle_knob", "queue_s") not in graph.edges
    assert {("queue_s", "time_s"), ("preemptions", "time_s")} <= set(graph.edges)  # never left out
    assert not any(other in graph.knobs or (one in graph.knobs and other == "time_s") for one, other in graph.edges)


def test_rank_correlations_answer_where_causal_learn_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(graphs.importlib.util, "find_spec", lambda name: None if name == "causallearn" else real(name))
    model = fitted()
    check_edges(model.graph)
    assert "not installed" in model.graph.method


def test_fast_causal_inference(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("causallearn")
    model = fitted()
    check_edges(model.graph)
    assert "causal-learn" in model.graph.method
    assert capsys.readouterr().out == ""


def test_few_runs_leave_nothing_out() -> None:
    model = fitted(10)
    assert len(model.graph.edges) == 4 * 2 + 2
    assert "too few" in model.graph.method
    assert model.is_ready


def test_a_metric_that_nothing_moves_does_no_harm() -> None:
    model = CausalModel(SPACE, ("queue_s", "packed_share"), "time_s")
    model.add(runs(60), toy(SPACE.default()))
    model.learn()
    assert np.isfinite(model.predict([SPACE.default()], toy(SPACE.default()))[0]["time_s"])


def test_metrics_come_in_the_order_of_causes() -> None:
    graph = Graph(knobs=("k",), metrics=("a", "b"), objective="o", edges={("b", "a"): 1.0, ("k", "b"): 1.0}, method="by hand")
    assert graph.order() == ("b", "a")
    assert graph.parents("a") == ("b",)
    cycle = Graph(knobs=(), metrics=("a", "b"), objective="o", edges={("b", "a"): 1.0, ("a", "b"): 1.0}, method="by hand")
    assert sorted(cycle.order()) == ["a", "b"]


def test_pictures_show_all_names() -> None:
    graph = learn_graph(("k",), ("m",), "o", np.zeros((3, 1)), np.zeros((3, 1)))
    assert '"k" -> "m"' in dot(graph)
    assert dot(graph).count("rank=same") == 3
    picture = svg(graph)
    assert picture.startswith("<svg ")
    assert all(f">{name}</text>" in picture for name in "kmo")
