from __future__ import annotations

import pytest

from autoscout.core.config import Config
from autoscout.core.history import recall
from autoscout.core.origin import Origin
from autoscout.core.protocols import StudyRecord
from autoscout.core.task import Direction, Limit, Objective, Task
from autoscout.core.trial import Fidelity, Measurement, Proposal, Status, Trial
from autoscout.store.memory import MemoryStore

TASK = Task(system="toy", objective=Objective(metric="speed", direction=Direction.MAXIMIZE), workload={"rows": 100})


def filled(name: str = "old", task: Task = TASK, fidelity: Fidelity = Fidelity.MEASURED, count: int = 10) -> MemoryStore:
    store = MemoryStore()
    store.open(StudyRecord(name=name, task=task, space="", spec={}))
    trials = []
    for x in range(count):
        answer = Measurement(status=Status.OK, metrics={"speed": float(x), "memory": float(x)}, fidelity=fidelity)
        origin = {"by": "toy", "round": x, "note": f"proposal {x}"}
        trials.append(Trial(proposal=Proposal(config=Config(x=x), origin=Origin.from_json(origin)), measurement=answer))
    store.append(
        name, [*trials, Trial(proposal=Proposal(config=Config(x=-1)), measurement=Measurement(status=Status.CRASHED, fidelity=fidelity))]
    )
    return store


def test_trials_come_best_first_with_failures_and_the_last_notes() -> None:
    (past,) = recall(filled(), TASK)
    assert [trial.loss for trial in past.trials] == [*(-float(x) for x in range(9, -1, -1)), None]
    assert past.last == {"round": 9, "note": "proposal 9"}
    assert (past.study, past.similarity) == ("old", 1.0)


def test_losses_are_by_the_objective_at_hand() -> None:
    limited = Task(system="toy", objective=Objective(metric="speed", direction=Direction.MAXIMIZE, limits=(Limit.parse("memory<=5"),)))
    (past,) = recall(filled(task=Task(system="toy", objective=TASK.objective)), limited)
    assert past.trials[0].config == {"x": 5}
    assert sum(trial.loss is None for trial in past.trials) == 5


def test_many_trials_are_thinned_but_the_best_are_kept() -> None:
    (past,) = recall(filled(count=50), TASK, most=10)
    assert len(past.trials) <= 10
    assert [trial.config["x"] for trial in past.trials[:5]] == [49, 48, 47, 46, 45]
    assert past.trials[-1].config["x"] != 44, "and some of the rest"


def test_simulated_answers_are_no_past_except_of_a_system_that_only_simulates() -> None:
    assert recall(filled(fidelity=Fidelity.SIMULATED), TASK) == ()
    assert len(recall(filled(fidelity=Fidelity.SIMULATED), TASK, fidelity=Fidelity.SIMULATED)) == 1


@pytest.mark.parametrize(("least", "count"), [(0.0, 1), (0.4, 1), (0.6, 0)])
def test_only_what_is_similar_enough(least: float, count: int) -> None:
    other = Task(system="toy", objective=TASK.objective, workload={"rows": 50})
    assert len(recall(filled(), other, least=least)) == count


def test_a_study_in_which_nothing_worked_gives_way_to_the_next() -> None:
    store = filled(task=Task(system="toy", objective=TASK.objective, workload={"rows": 90}))
    store.open(StudyRecord(name="broken", task=TASK, space="", spec={}))
    store.append("broken", [Trial(proposal=Proposal(config=Config(x=1)), measurement=Measurement(status=Status.CRASHED))])
    assert [past.study for past in recall(store, TASK, limit=1)] == ["old"]
