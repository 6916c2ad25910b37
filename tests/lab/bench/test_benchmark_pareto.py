from __future__ import annotations

import numpy as np
import pytest
from benchmarks import pareto

from autoscout.common.front import hypervolume, on_front


def test_recorded_answers_have_two_goals_that_pull_apart() -> None:
    for name in ("decoding", "matmul"):
        case = pareto.problem(name)
        losses = np.array([case.losses(config) for config, answer in case.answers.items() if answer])
        front = losses[on_front(losses)]
        assert len(front) >= 5
        assert front[:, 0].argmin() != front[:, 1].argmin(), "no configuration is best in both"


def test_the_whole_front_is_all_of_it_and_its_ends_are_less() -> None:
    case = pareto.problem("matmul")
    losses = np.array([case.losses(config) for config, answer in case.answers.items() if answer])
    front = losses[on_front(losses)]
    reference = np.full(2, pareto.BEYOND)
    whole = hypervolume(pareto.shares(losses, front), reference)
    assert whole == pytest.approx(hypervolume(pareto.shares(front, front), reference))
    ends = front[[front[:, 0].argmin(), front[:, 1].argmin()]]
    assert 0.0 < hypervolume(pareto.shares(ends, front), reference) < 0.8 * whole


def test_runs_become_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pareto, "TRIALS", 8)
    runs = [pareto.one_run(("decoding", "random", seed)) for seed in range(2)]
    assert runs[0]["shares"] == sorted(runs[0]["shares"])
    assert pareto.one_run(("decoding", "random", 1))["shares"] == runs[1]["shares"]
    others = [{**run, "method": method} for run in runs for method in pareto.METHODS if method != "random"]
    found = pareto.figures([*runs, *others])
    assert found["decoding"]["hybrid_ahead"] == {"Optuna TPE": 0, "Optuna NSGA-II": 0, "random": 0}
    assert "| random |" in pareto.page(found)
