"""A ledger says the same as a look at all trials, and the loop of a study looks at each trial a bounded number of times."""

from __future__ import annotations

import math
import random

import pytest

from _toys import FromFunction, Watcher, ok, toy_task
from autoscout.core import plugins
from autoscout.core.config import Config
from autoscout.core.origin import Origin, Phase
from autoscout.core.protocols import StudyRecord
from autoscout.core.task import Limit, Objective
from autoscout.core.trial import Fidelity, Measurement, Proposal, Status, Trial
from autoscout.space import Grid, Space
from autoscout.study.final import Finals
from autoscout.study.ledger import Ledger
from autoscout.study.study import Study


def some(count: int) -> list[Trial]:
    rng = random.Random(3)
    trials = []
    for _ in range(count):
        answer = ok(rng.uniform(1.0, 9.0), cost_s=rng.uniform(1.0, 5.0), fidelity=rng.choice([Fidelity.SIMULATED, Fidelity.MEASURED]))
        if rng.random() < 0.2:
            answer = Measurement(status=Status.CRASHED, cost_s=0.5)
        origin = Origin.from_json({"phase": rng.choice(["search", "search", "search", "final"])})
        trials.append(Trial(proposal=Proposal(config=Config(x=rng.randrange(20)), origin=origin), measurement=answer))
    return trials


def test_a_ledger_that_grows_says_what_a_look_at_all_trials_says() -> None:
    ledger, trials = Ledger(), some(60)
    objective = Objective(metric="time_s", limits=(Limit.parse("time_s<=7"),))
    for number, trial in enumerate(trials, start=1):
        ledger.append(trial)
        before = trials[:number]
        search = [one for one in before if one.proposal.origin.phase is Phase.SEARCH]
        top = max((one.measurement.fidelity for one in search), default=None)
        counted = [one for one in search if one.measurement.fidelity is top]
        final = [one for one in before if one.proposal.origin.phase is Phase.FINAL and one.ok]
        whole = final or [one for one in counted if one.ok] or counted
        least: dict[Config, float] = {}
        for one in (one for one in before if one.measurement.fidelity is Fidelity.MEASURED):
            least[one.config] = min(objective.loss(one.measurement), least.get(one.config, math.inf))
        assert ledger.counted == len(counted)
        assert ledger.mean_s == pytest.approx(sum(one.measurement.cost_s for one in whole) / max(1, len(whole)))
        assert ledger.cost_s == pytest.approx(sum(one.measurement.cost_s for one in before))
        assert ledger.trials_of(Config(x=3)) == [one for one in before if one.config == Config(x=3)] or not ledger.trials_of(Config(x=3))
        assert ledger.losses(objective) == sorted(loss for loss in least.values() if math.isfinite(loss))
    assert Ledger.of(ledger) is ledger
    assert Ledger.of(trials) == ledger


def test_another_objective_is_ranked_anew() -> None:
    ledger = Ledger([Trial(proposal=Proposal(config=Config(x=x)), measurement=ok(float(x))) for x in range(1, 4)])
    assert ledger.losses(Objective(metric="time_s")) == [1.0, 2.0, 3.0]
    assert ledger.losses(Objective(metric="time_s", limits=(Limit.parse("time_s<=2"),))) == [1.0, 2.0]


@pytest.mark.parametrize("works", [True, False], ids=["all work", "none but the default works"])
def test_a_trial_of_a_long_study_is_judged_as_often_as_one_of_a_short_one(works: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    losses = Objective.losses

    def counting(self: Objective, measurement: Measurement) -> tuple[float, ...]:
        nonlocal calls
        calls += 1
        return losses(self, measurement)

    def judged(trials: int) -> float:
        nonlocal calls
        calls, space = 0, Space([Grid("x", 0, 10**6)])
        task = toy_task(trials=trials)
        store = plugins.get("store", "memory")()
        Study(
            record=store.open(StudyRecord(name="s", task=task, space="", spec={})),
            space=space,
            searcher=plugins.get("searcher", "random")(space, task),
            evaluator=FromFunction(lambda config: ok(1.0) if works or config["x"] == 0 else Measurement(status=Status.CRASHED)),
            store=store,
            observer=Watcher(),
            worker="w",
            default=Config(x=0),
            finals=Finals(rounds=0),
        ).run()
        return calls / trials

    monkeypatch.setattr(Objective, "losses", counting)
    assert judged(160) < 1.3 * judged(40)
