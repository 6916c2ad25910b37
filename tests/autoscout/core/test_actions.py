from __future__ import annotations

from typing import Any

import pytest

from autoscout.core.actions import Action, ActionKind, invalid_trials, raised
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.task import Budget


@pytest.mark.parametrize(
    "action",
    [
        Action(kind=ActionKind.STOP, reason="enough"),
        Action(kind=ActionKind.BUDGET, budget={"trials": 30, "wall_s": 60.5}, number=3, at_s=5.0),
        Action(kind=ActionKind.TRY, config=Config(x=1, flag=True), answer="refused"),
        Action(kind=ActionKind.INVALID, trial=0),
    ],
    ids=lambda action: action.kind.value,
)
def test_json_keeps_everything(action: Action) -> None:
    assert Action.from_json(action.to_json()) == action


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"kind": ActionKind.BUDGET}, "budget"),
        ({"kind": ActionKind.BUDGET, "budget": {"gpus": 3}}, "gpus"),
        ({"kind": ActionKind.BUDGET, "budget": {"trials": -1}}, "trials"),
        ({"kind": ActionKind.BUDGET, "budget": {"wall_s": float("inf")}}, "wall_s"),
        ({"kind": ActionKind.TRY}, "config"),
        ({"kind": ActionKind.INVALID}, "trial"),
        ({"kind": ActionKind.STOP, "reason": "x" * 501}, "reason"),
    ],
)
def test_what_cannot_be_obeyed_is_refused(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        Action(**fields)


def test_a_budget_is_raised_and_never_lowered() -> None:
    budget = Budget(trials=24, wall_s=None)
    actions = [Action(kind=ActionKind.BUDGET, budget=bounds) for bounds in ({"trials": 30}, {"trials": 28}, {"wall_s": 60.0})]
    assert raised(budget, actions) == Budget(trials=30, wall_s=None), "no bound stays no bound"
    assert raised(Budget(trials=40), actions).trials == 40
    assert raised(budget, []) == budget


def test_invalid_trials() -> None:
    actions = [Action(kind=ActionKind.STOP), Action(kind=ActionKind.INVALID, trial=4, reason="cron")]
    assert invalid_trials(actions) == {4: "cron"}
