from __future__ import annotations

from dataclasses import replace

import pytest

from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.guards import as_told, bind, refuse_unknown
from autoscout.core.origin import Origin, Phase
from autoscout.core.task import Guard, Limit, Objective, Task
from autoscout.core.trial import Fidelity, Measurement, Proposal, Status, Trial

DEFAULT = Config(x=0)
TASK = Task(
    system="toy",
    objective=Objective(metric="time_s", limits=(Limit.parse("mem_gib<=9"),), guards=(Guard.parse("p99_itl_ms <= 1.2x"),)),
)


def trial(x: int, itl: float | None, fidelity: Fidelity = Fidelity.MEASURED, origin: Origin | None = None) -> Trial:
    metrics = {"time_s": 1.0, "mem_gib": 1.0, **({} if itl is None else {"p99_itl_ms": itl})}
    answer = Measurement(status=Status.OK, metrics=metrics, fidelity=fidelity)
    return Trial(proposal=Proposal(config=Config(x=x), origin=origin or Origin()), measurement=answer)


@pytest.mark.parametrize("text", ["p99_itl_ms<=1.2", "p99_itl_ms<=x", "<=1.2x", "p99_itl_ms<=-1x", "p99_itl_ms<=0x", "p99_itl_ms==1x"])
def test_what_is_no_guard_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="a guard reads"):
        Guard.parse(text)


def test_a_guard_is_kept_with_the_task_and_what_it_became_is_not() -> None:
    bound = bind(TASK, [trial(0, 10.0)], DEFAULT)
    assert [str(limit) for limit in bound.objective.limits] == ["mem_gib<=9", "p99_itl_ms<=12"]
    assert Task.from_json(bound.to_json()) == TASK
    assert bound.key == TASK.key
    assert replace(TASK, objective=replace(TASK.objective, guards=())).key != TASK.key


def test_a_task_without_guards_is_written_as_before() -> None:
    plain = replace(TASK, objective=replace(TASK.objective, guards=()))
    assert set(plain.to_json()["objective"]) == {"metric", "direction", "limits"}
    assert bind(plain, [trial(0, 10.0)], DEFAULT) is plain


def test_binding_follows_the_defaults_median_and_the_final_where_there_is_one() -> None:
    assert bind(TASK, [trial(1, 5.0)], DEFAULT).objective.limits == TASK.objective.limits, "unknown: does not bind"
    search = [trial(0, 10.0), trial(0, 30.0), trial(0, 20.0)]
    assert bind(TASK, search, DEFAULT).objective.limits[-1].value == 24.0
    final = trial(0, 100.0, origin=Origin(phase=Phase.FINAL, round=1))
    again = bind(bind(TASK, search, DEFAULT), [*search, final], DEFAULT)
    assert [limit.value for limit in again.objective.limits] == [9.0, 120.0], "bound again, not twice"


def test_a_searcher_is_told_of_a_broken_guard_as_of_a_broken_limit() -> None:
    stored = [trial(0, 10.0)]
    slow, fine = trial(1, 12.5), trial(2, 12.0)
    assert TASK.objective.loss(as_told(slow, TASK, stored, DEFAULT).measurement) == float("inf")
    assert as_told(slow, TASK, stored, DEFAULT).ok
    assert as_told(fine, TASK, stored, DEFAULT) is fine
    assert as_told(slow, TASK, [], DEFAULT) is slow, "nothing to compare with yet"
    simulated = trial(1, 12.5, Fidelity.SIMULATED)
    assert as_told(simulated, TASK, stored, DEFAULT) is simulated, "like is compared with like"


def test_a_default_without_the_metric_is_one_clear_error() -> None:
    refuse_unknown(trial(0, 10.0), TASK, DEFAULT)
    refuse_unknown(trial(1, None), TASK, DEFAULT)
    with pytest.raises(ConfigError, match=r"the default does not report p99_itl_ms.*mem_gib, time_s"):
        refuse_unknown(trial(0, None), TASK, DEFAULT)
