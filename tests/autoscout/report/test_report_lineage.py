from __future__ import annotations

import json
from typing import Any

from autoscout.analysis.lineage import lineage, role_of
from autoscout.core.config import Config
from autoscout.core.origin import Origin
from autoscout.core.task import Direction, Objective, Task
from autoscout.core.trial import Fidelity, Measurement, Proposal, Status, Trial

TASK = Task(system="toy", objective=Objective(metric="rate", direction=Direction.MAXIMIZE))


def trial(number: int, rate: float | None, origin: dict[str, Any], fidelity: Fidelity = Fidelity.MEASURED, **config: Any) -> Trial:
    status = Status.OOM_RUN if rate is None else Status.OK
    measurement = Measurement(status=status, metrics={} if rate is None else {"rate": rate}, fidelity=fidelity)
    return Trial(proposal=Proposal(config=Config(config), origin=Origin.from_json(origin)), measurement=measurement, number=number)


STUDY = [
    trial(0, 10.0, {"by": "default"}, tp=1, batch=8),
    trial(1, 9.0, {"by": "hybrid", "arm": "sparse", "round": 0}, tp=2, batch=8, sp=True),
    trial(2, None, {"by": "hybrid", "arm": "sparse", "round": 1}, tp=4, batch=8, sp=True),
    trial(3, 15.0, {"by": "hybrid", "arm": "dense", "round": 2}, tp=1, batch=16),
    trial(4, 99.0, {"by": "hybrid", "arm": "dense", "round": 3}, Fidelity.SIMULATED, tp=1, batch=32),
    trial(5, 20.0, {"by": "hybrid", "arm": "sparse", "round": 4}, tp=2, batch=16, sp=False),
    trial(6, 21.0, {"phase": "final", "round": 1}, tp=2, batch=16, sp=False),
]


def test_roles_count_what_each_part_did() -> None:
    roles = {role.name: role for role in lineage(TASK, STUDY, ["tp"]).roles}
    assert set(roles) == {"default", "hybrid, arm sparse", "hybrid, arm dense"}
    sparse = roles["hybrid, arm sparse"]
    assert (sparse.proposals, sparse.failed, sparse.improved, sparse.best) == (3, 1, 1, 20.0)


def test_advances_are_measured_ones_and_say_what_changed() -> None:
    steps = lineage(TASK, STUDY, ["tp"]).advances
    assert [(step.number, step.value) for step in steps] == [(0, 10.0), (3, 15.0), (5, 20.0)]
    assert dict(steps[1].changed) == {"batch": (8, 16)}
    assert dict(steps[2].changed) == {"tp": (1, 2), "sp": (None, False)}


def test_the_tree_branches_by_the_given_knobs_best_first() -> None:
    tree = lineage(TASK, STUDY, ["tp", "sp"], depth=2).tree
    assert (tree.trials, tree.failed) == (6, 1)
    assert [child.label for child in tree.children] == ["tp=1", "tp=2", "tp=4"]
    assert [leaf.label for leaf in tree.children[1].children] == ["sp=False", "sp=True"]
    assert tree.children[0].children[0].label == "no sp"
    assert tree.children[2].best is None
    assert lineage(TASK, STUDY, ["tp"], depth=0).tree.children == ()


def test_it_survives_files_and_studies_without_trials() -> None:
    json.dumps(lineage(TASK, STUDY, ["tp", "sp"]).to_json(), allow_nan=False)
    empty = lineage(TASK, [], ["tp"])
    assert (empty.roles, empty.advances, empty.tree.trials) == ((), (), 0)
    assert role_of(trial(0, 1.0, {}, tp=1)) == "unknown"
