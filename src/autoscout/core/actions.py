"""Actions: what somebody asks of a study from outside, and says of it.

A store keeps them; whoever runs the study reads them between two trials.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from autoscout.core.config import Config
from autoscout.core.description import Description, faults_of
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.task import Budget

BOUNDS = ("trials", "wall_s", "cost_s")
"""Bounds of a budget that an action may raise."""
REASON_CHARS = 500


class ActionKind(StrEnum):
    """What is asked for."""

    STOP = "stop"  # finish the trials under way and end; counts for the runs that are under way when it is asked
    BUDGET = "budget"  # continue until a higher bound
    TRY = "try"  # measure this configuration
    INVALID = "invalid"  # leave a trial out of everything: its number cannot be trusted
    DESCRIBE = "describe"  # another title, other tags or another note for people; put it away, or bring it back
    RUN = "run"  # a process begins to work on the study; the answer says how that ended


@dataclass(frozen=True, kw_only=True)
class Action:
    """One thing asked of a study; stored once, and answered by the process that heeds it.

    Attributes:
        kind: What is asked for.
        budget: With `BUDGET`: the new bounds, in all.
        config: With `TRY`: the knobs to set; the others are as in the default.
        trial: With `INVALID`: the number of the trial.
        words: With `DESCRIBE`: what changes of a `core.description.Description`.
        worker: With `RUN`: who works on it.
        reason: Why, in the words of whoever asks.
        number: Counts within the study from 0; given by the store.
        at_s: When it was asked, in seconds since the epoch; given by the store.
        answer: What a process that runs the study made of it; empty while nobody has.
    """

    kind: ActionKind
    budget: Mapping[str, float] = field(default_factory=dict)
    config: Config = field(default_factory=Config)
    trial: int = -1
    words: Mapping[str, Any] = field(default_factory=dict)
    worker: str = ""
    reason: str = ""
    number: int = -1
    at_s: float = 0.0
    answer: str = ""

    def __post_init__(self) -> None:
        faults = []
        if unknown := sorted(set(self.budget) - set(BOUNDS)):
            faults.append(Fault(where="action", field="budget", value=", ".join(unknown), rule=f"bounds are {', '.join(BOUNDS)}"))
        wrong = [name for name, value in self.budget.items() if not 0 < value < 1e12]
        faults += [
            Fault(where="action", field=name, value=repr(self.budget[name]), rule="a bound is a number above zero") for name in wrong
        ]
        needs = {
            ActionKind.BUDGET: ("budget", bool(self.budget)),
            ActionKind.TRY: ("config", bool(self.config)),
            ActionKind.INVALID: ("trial", self.trial >= 0),
            ActionKind.DESCRIBE: ("words", bool(self.words)),
            ActionKind.RUN: ("worker", bool(self.worker)),
        }
        name, there = needs.get(self.kind, ("", True))
        if not there:
            faults.append(Fault(where="action", field=name, rule=f"is needed to {self.kind.value}"))
        faults += faults_of(self.words)
        if len(self.reason) > REASON_CHARS:
            faults.append(Fault(where="action", field="reason", rule=f"has at most {REASON_CHARS} characters"))
        if faults:
            raise ConfigError(faults)

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = {"kind": self.kind.value, "number": self.number, "at_s": self.at_s}
        data |= {"budget": dict(self.budget)} if self.budget else {}
        data |= {"config": self.config.to_json()} if self.config else {}
        data |= {"trial": self.trial} if self.trial >= 0 else {}
        data |= {"words": dict(self.words)} if self.words else {}
        texts = (("worker", self.worker), ("reason", self.reason), ("answer", self.answer))
        return data | {name: text for name, text in texts if text}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Action:
        names = {each.name for each in fields(cls)}
        if unknown := sorted(set(data) - names):
            raise ConfigError([Fault(where="action", field=name, rule="unknown field") for name in unknown])
        given: dict[str, Any] = {**data, "kind": ActionKind(data["kind"]), "config": Config(data.get("config", {}))}
        return cls(**given)


@dataclass(frozen=True, kw_only=True)
class Pulse:
    """How far a study is, for those who watch it.

    Attributes:
        trials: How many are stored.
        actions: How many were asked for, and how many of them answered.
        workers: Who holds a claim that still counts, once for each.
    """

    trials: int
    actions: tuple[int, int] = (0, 0)
    workers: tuple[str, ...] = ()


def invalid_trials(actions: Iterable[Action]) -> dict[int, str]:
    """Numbers of the trials that were marked invalid, and why."""
    return {action.trial: action.reason for action in actions if action.kind is ActionKind.INVALID}


def described(actions: Iterable[Action]) -> Description:
    """What people say of the study: the newest word on each."""
    description = Description()
    for action in actions:
        description = description.having(action.words)
    return description


def raised(budget: Budget, actions: Iterable[Action]) -> Budget:
    """The budget with the bounds that actions raised; what has no bound keeps none."""
    updates: dict[str, Any] = {}
    for action in actions:
        for name, value in action.budget.items():
            bound = updates.get(name, getattr(budget, name))
            if bound is not None and value > bound:
                updates[name] = int(value) if name == "trials" else value
    return replace(budget, **updates)


__all__ = ["BOUNDS", "Action", "ActionKind", "Pulse", "described", "invalid_trials", "raised"]
