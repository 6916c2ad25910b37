"""Studies with several goals, from campaign to files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import autoscout
from autoscout.core.errors import ConfigError
from autoscout.core.origin import Phase
from autoscout.core.task import Direction, Goal, Objective
from autoscout.study.campaign import build_campaign
from autoscout.study.final import Finals
from autoscout.study.setup import prepare

TWO = Objective(metric="rate", direction=Direction.MAXIMIZE, also=(Goal(metric="late_ms"),))
KNOBS = {"batch": [1, 2, 4, 8, 16, 32], "waste": [3, 2, 1, 0], "mode": ["a", "b"]}


def served(config: autoscout.Config) -> dict[str, float]:
    batch, waste = float(config["batch"]), 1.0 + 0.2 * config["waste"] + 0.3 * (config["mode"] == "a")
    return {"rate": 100.0 * batch**0.7 / waste, "late_ms": 5.0 * (1.0 + batch) * waste}


def noisy(config: autoscout.Config, draws: np.random.Generator) -> dict[str, float]:
    return {name: value * float(np.exp(0.01 * draws.normal())) for name, value in served(config).items()}


@pytest.mark.parametrize("searcher", ["hybrid", "random", "evolution"])
def test_a_study_with_two_goals_finds_the_front(searcher: str, tmp_path: Path) -> None:
    found = autoscout.optimize(served, KNOBS, TWO, trials=30, searcher=searcher, folder=tmp_path / "study")
    front = found.summary.front
    assert front is not None
    assert len(front.points) >= 3
    assert len({trial.config for trial in found.trials}) == 30
    names = {path.name for path in (tmp_path / "study" / "front").iterdir()}
    assert names == {point.name for point in front.handed_over} >= {"best-rate", "best-late-ms"}
    assert json.loads((tmp_path / "study" / "front.json").read_text())["goals"] == ["rate:maximize", "late_ms:minimize"]
    assert found.best == front.points[0].config, "best/ is the point that the first metric names"
    if searcher == "hybrid":
        assert {(point.config["waste"], point.config["mode"]) for point in front.points} == {(0, "b")}


def test_the_final_measures_points_of_the_front_and_resumes(tmp_path: Path) -> None:
    draws = np.random.default_rng(0)
    how = {"finals": Finals(finalists=4, rounds=3), "folder": tmp_path / "study", "name": "front"}
    first = autoscout.optimize(lambda config: noisy(config, draws), KNOBS, TWO, trials=14, **how)
    final = [trial for trial in first.trials if trial.proposal.origin.phase is Phase.FINAL]
    assert len({trial.config for trial in final}) == 5
    assert len(final) == 15
    assert first.summary.front is not None
    assert first.summary.front.rounds == 3
    assert first.summary.front.volume.low is not None
    assert not [trial for trial in first.trials if trial.proposal.origin.phase is Phase.SIMPLIFY]
    again = autoscout.optimize(lambda config: noisy(config, draws), KNOBS, TWO, trials=14, **how)
    assert len(again.trials) == len(first.trials), "nothing is measured twice"
    assert again.summary.front == first.summary.front


def test_a_limit_bounds_the_front() -> None:
    found = autoscout.optimize(served, KNOBS, TWO, trials=40, limits=["late_ms<=60"])
    assert found.summary.front is not None
    assert max(point.metrics["late_ms"] for point in found.summary.front.points) <= 60.0


def test_more_points_are_measured_again_with_several_goals() -> None:
    data = {"system": "virtual", "workload": {"concurrency": 8}, "goal": {"metrics": ["output_throughput", "p95_ttft_ms"]}}
    setup = prepare(build_campaign(data, where="test"))
    assert (setup.finals.finalists, setup.finals.rounds, setup.simplify.trials) == (5, 3, 0)
    assert setup.spec["goal"] == {"metrics": ["output_throughput:maximize", "p95_ttft_ms:minimize"]}
    assert prepare(build_campaign(setup.spec, where="test")).task == setup.task
    one = prepare(build_campaign({**data, "goal": {"metrics": ["output_throughput"]}}, where="test"))
    assert one.task == prepare(build_campaign({**data, "goal": {"metric": "output_throughput"}}, where="test")).task
    assert (one.finals.finalists, one.finals.rounds) == (2, 5)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"goal": {"metrics": ["output_throughput", "no_such_ms"]}}, "no such metric"),
        ({"goal": {"metrics": ["output_throughput", "cost_per_million_tokens"]}}, "what does a GPU cost"),
        ({"workload": {}, "goal": {"metrics": ["step_s", "tokens_per_s"]}}, "one metric at a time"),
    ],
)
def test_goals_that_cannot_be_met_are_refused(changes: dict[str, object], said: str) -> None:
    data = {"system": "virtual", "workload": {"concurrency": 8}, **changes}
    with pytest.raises(ConfigError, match=said):
        prepare(build_campaign(data, where="test"))


def test_the_python_of_the_guide_runs(capsys: pytest.CaptureFixture[str]) -> None:
    guide = Path(__file__).parents[3] / "docs" / "guides" / "goals.md"
    (code,) = re.findall(r"```python\n(.*?)```", guide.read_text(), flags=re.DOTALL)
    exec(compile(code, str(guide), "exec"), {"__name__": "guide"})
    assert "front of 5 points, the default among them" in capsys.readouterr().out
