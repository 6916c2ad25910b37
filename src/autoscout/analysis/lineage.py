"""Why a search went where it went: who proposed what, the steps by which the best was found, and the tree of what was tried.

Everything is read from the trials and their origins, so it works for every searcher, also for one that is not installed here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autoscout.analysis.curves import ordered
from autoscout.core.config import Config, Value
from autoscout.core.origin import Origin, Phase
from autoscout.core.task import Task
from autoscout.core.trial import Trial

_SHOWN = ("proposer", "arm", "cell", "level", "how", "stage")
"""Notes that name a role; numbers and keys name occasions."""


@dataclass(frozen=True, kw_only=True)
class Role:
    """What one part of a searcher did: how many proposals, how many failed, how often it set a new best."""

    name: str
    proposals: int
    failed: int
    improved: int
    best: float | None


@dataclass(frozen=True, kw_only=True)
class Advance:
    """A trial that became the best so far, what it changed against the best before, and why it was proposed."""

    number: int
    value: float
    changed: Mapping[str, tuple[Value, Value]]
    origin: Origin


@dataclass(frozen=True, kw_only=True)
class Branch:
    """A partial configuration in the tree of what was tried."""

    label: str
    trials: int
    failed: int
    best: float | None
    children: tuple[Branch, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Lineage:
    """The story of a search."""

    roles: tuple[Role, ...]
    advances: tuple[Advance, ...]
    tree: Branch

    def to_json(self) -> dict[str, Any]:
        return {
            "roles": [dict(vars(role)) for role in self.roles],
            "advances": [
                {**vars(step), "changed": {name: list(pair) for name, pair in step.changed.items()}, "origin": step.origin.to_json()}
                for step in self.advances
            ],
            "tree": _branch_json(self.tree),
        }


def lineage(task: Task, trials: Sequence[Trial], knobs: Sequence[str], depth: int = 3) -> Lineage:
    """Tell the story of a study.

    Args:
        task: Which way is better.
        trials: All trials of the study; those of the final are left out.
        knobs: The knobs the tree branches by, the most telling first.
        depth: Levels of the tree.
    """
    search = [trial for trial in ordered(trials) if trial.proposal.origin.phase is Phase.SEARCH]
    advances = _advances(task, search)
    winners = {step.number for step in advances}
    roles = {role: [trial for trial in search if role_of(trial) == role] for role in dict.fromkeys(map(role_of, search))}
    parts = [_role(task, role, members, winners) for role, members in roles.items()]
    return Lineage(
        roles=tuple(sorted(parts, key=lambda role: (-role.improved, -role.proposals, role.name))),
        advances=tuple(advances),
        tree=_branch(task, "all", search, list(knobs)[:depth]),
    )


def role_of(trial: Trial) -> str:
    """Who proposed a trial, in a few words: `hybrid, proposer stalled`."""
    origin = trial.proposal.origin
    parts = [origin.by or "unknown"]
    parts += [f"{name} {origin.notes[name]}" for name in _SHOWN if isinstance(origin.notes.get(name), (str, int))]
    return ", ".join(parts)


def _value(task: Task, trial: Trial) -> float | None:
    return task.objective.value(trial.measurement) if task.objective.loss(trial.measurement) != float("inf") else None


def _best(task: Task, trials: Sequence[Trial]) -> float | None:
    losses = [(task.objective.loss(trial.measurement), trial) for trial in trials]
    best = min(losses, key=lambda pair: pair[0], default=None)
    return None if best is None or best[0] == float("inf") else _value(task, best[1])


def _role(task: Task, name: str, trials: Sequence[Trial], winners: set[int]) -> Role:
    return Role(
        name=name,
        proposals=len(trials),
        failed=sum(trial.measurement.status.failed for trial in trials),
        improved=sum(trial.number in winners for trial in trials),
        best=_best(task, trials),
    )


def _advances(task: Task, trials: Sequence[Trial]) -> list[Advance]:
    """The trials that set a new best, at the highest fidelity that any trial has."""
    top = max((trial.measurement.fidelity for trial in trials), default=None)
    advances: list[Advance] = []
    loss, before = float("inf"), Config()
    for trial in trials:
        value, cost = _value(task, trial), task.objective.loss(trial.measurement)
        if value is None or cost >= loss or trial.measurement.fidelity is not top:
            continue
        names = sorted({*before, *trial.config}) if before else []
        changed = {name: (before.get(name), trial.config.get(name)) for name in names if before.get(name) != trial.config.get(name)}
        advances.append(Advance(number=trial.number, value=value, changed=changed, origin=trial.proposal.origin))
        loss, before = cost, trial.config
    return advances


def _branch(task: Task, label: str, trials: Sequence[Trial], knobs: Sequence[str]) -> Branch:
    children: list[Branch] = []
    if knobs:
        grouped: dict[str, list[Trial]] = {}
        for trial in trials:
            text = f"{knobs[0]}={trial.config[knobs[0]]}" if knobs[0] in trial.config else f"no {knobs[0]}"
            grouped.setdefault(text, []).append(trial)
        children = [_branch(task, text, members, knobs[1:]) for text, members in grouped.items()]
        better = {child.label: min(task.objective.loss(t.measurement) for t in grouped[child.label]) for child in children}
        children.sort(key=lambda child: (better[child.label], child.label))
    failed = sum(trial.measurement.status.failed for trial in trials)
    return Branch(label=label, trials=len(trials), failed=failed, best=_best(task, trials), children=tuple(children))


def _branch_json(branch: Branch) -> dict[str, Any]:
    return {**vars(branch), "children": [_branch_json(child) for child in branch.children]}
