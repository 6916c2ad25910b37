from __future__ import annotations

import json

import pytest

from autoscout.core.config import Config
from autoscout.core.history import best
from autoscout.core.origin import Origin
from autoscout.core.task import Objective, Task
from autoscout.core.trial import Fidelity, Measurement, Proposal, Status, Trial


def trial(cost: float, fidelity: Fidelity = Fidelity.MEASURED, status: Status = Status.OK) -> Trial:
    metrics = {"time_s": cost} if status is Status.OK else {}
    return Trial(proposal=Proposal(config=Config(x=cost)), measurement=Measurement(status=status, metrics=metrics, fidelity=fidelity))


def test_json_round_trip_keeps_everything() -> None:
    full = Trial(
        proposal=Proposal(config=Config(a=1, b=True, c=None, d=0.1), origin=Origin.from_json({"by": "tree", "cell": [0, 1]}), repeat=3),
        measurement=Measurement(
            status=Status.OOM_RUN,
            metrics={"m": 1.5},
            samples={"m": (1.0, 2.0)},
            fidelity=Fidelity.SIMULATED,
            cost_s=2.5,
            conditions={"cpu_pressure": 0.25},
            reason="why",
            log_tail="last\nwords é",
        ),
        study="s",
        number=7,
        batch=3,
        started_s=1.25,
        finished_s=3.75,
        worker="host:1",
    )
    assert Trial.from_json(json.loads(json.dumps(full.to_json()))) == full


def test_a_metric_must_be_finite() -> None:
    with pytest.raises(ValueError, match="metric 'm' must be finite"):
        Measurement(status=Status.OK, metrics={"m": float("nan")})


def test_aborted_is_no_failure_of_the_configuration() -> None:
    assert not Status.ABORTED.failed
    assert not Status.OK.failed
    assert all(status.failed for status in Status if status not in (Status.OK, Status.BOUNDED, Status.ABORTED))


def test_best_ranks_by_fidelity_before_value() -> None:
    task = Task(system="toy", objective=Objective(metric="time_s"))
    simulated, measured = trial(0.381, Fidelity.SIMULATED), trial(1.874)
    assert best([simulated, measured], task) is measured
    assert best([simulated, trial(9.0, status=Status.CRASHED)], task) is simulated
    assert best([trial(1.0, Fidelity.PREDICTED)], task) is None
    assert best([], task) is None
    first = trial(1.0)
    assert best([first, trial(1.0)], task) is first
