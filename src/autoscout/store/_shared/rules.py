"""What every store decides in the same way: who may join a study, which trials are new, which claims still count."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, Fault, StoreError
from autoscout.core.protocols import StudyRecord
from autoscout.core.room import Room
from autoscout.core.task import Task
from autoscout.core.trial import Proposal
from autoscout.core.worker import is_gone

NAME_LENGTH = 200

Slot = tuple[str, int]
"""Digest of a configuration and its repeat: what only one worker may hold, and what a finished trial settles."""


def digest(config: Config) -> str:
    """A configuration's identity at a fixed length: indexes do not take canonical forms of any length."""
    return hashlib.sha256(config.canonical.encode()).hexdigest()


def slot(proposal: Proposal) -> Slot:
    """The slot a proposal asks for."""
    return digest(proposal.config), proposal.repeat


def distinct(proposals: Sequence[Proposal]) -> dict[Slot, Proposal]:
    """The first proposal of each slot, in order."""
    by_slot: dict[Slot, Proposal] = {}
    for proposal in proposals:
        by_slot.setdefault(slot(proposal), proposal)
    return by_slot


@dataclass(frozen=True, kw_only=True)
class Claim:
    """Who holds a slot, and until when others have to believe it."""

    worker: str
    until_s: float

    def bars(self, worker: str, now_s: float) -> bool:
        """Whether `worker` has to leave the slot alone. A worker's own claim does not: it may have lost track of it."""
        return self.worker != worker and not self.is_stale(now_s)

    def is_stale(self, now_s: float) -> bool:
        """Whether the claim has run out or its holder died on this machine."""
        return self.until_s <= now_s or is_gone(self.worker)


def within(
    granted: Mapping[Slot, Proposal], room: Room, number: int, held: Mapping[Slot, Claim], worker: str, now_s: float
) -> dict[Slot, Proposal]:
    """Of the slots that could be granted, those that a budget has room for.

    Args:
        granted: The slots.
        room: As the worker saw it.
        number: Of the next trial.
        held: All claims of the study.
        worker: Who asks; its own claims are in what it saw.
        now_s: The time.
    """
    others = sum(claim.bars(worker, now_s) for claim in held.values())
    return dict(list(granted.items())[: room.left(number, others)])


def check_record(record: StudyRecord, where: str) -> None:
    """Refuse records that no store can keep."""
    name, faults = record.name, []
    if not name.strip() or len(name) > NAME_LENGTH or not name.isprintable():
        rule = f"a study name has 1 to {NAME_LENGTH} printable characters"
        fix = "Give another --experiment-name"
        faults.append(Fault(where=where, field="name", value=repr(name[: NAME_LENGTH + 1]), rule=rule, fix=fix))
    for field, data in (("task", record.task.to_json()), ("spec", dict(record.spec))):
        try:
            json.dumps(data)
        except (TypeError, ValueError) as error:
            rule = f"must be plain JSON to be stored: {error}"
            faults.append(Fault(where=where, field=field, rule=rule, fix="Use numbers, text, lists and mappings only"))
    if faults:
        raise ConfigError(faults)


def join(stored: StudyRecord, asked: StudyRecord, where: str) -> StudyRecord:
    """The record in force when somebody opens a study that exists.

    Budget, space and spec are those of the newcomer; the task must be the stored one, because trials of two tasks
    cannot be compared.

    Raises:
        ConfigError: another task; one fault per difference.
    """
    if stored.task.key != asked.task.key:
        raise ConfigError(
            [
                Fault(
                    where=where,
                    field=field,
                    rule=f"study {stored.name!r} was begun with another task",
                    value=f"{_show(new)}, but the stored one is {_show(old)}",
                    fix="Set it back to resume this study, or begin another one: give another --experiment-name or --output-dir",
                )
                for field, old, new in _differences(stored.task, asked.task)
            ]
        )
    task = replace(stored.task, budget=asked.task.budget)
    return replace(stored, task=task, space=asked.space or stored.space, spec=dict(asked.spec) or stored.spec)


def unknown_study(study: str, names: Sequence[str], where: str) -> StoreError:
    """For everything that names a study nobody opened."""
    listed = ", ".join(repr(name) for name in names[:10]) or "none"
    return StoreError(Fault(where=where, value=repr(study), rule=f"no such study; there are: {listed}", fix="Open it first"))


_ABSENT = object()


def _differences(stored: Task, asked: Task) -> list[tuple[str, Any, Any]]:
    old, new = _flat(stored.to_json()), _flat(asked.to_json())
    fields = [field for field in {**old, **new} if field.partition(".")[0] != "budget"]
    pairs = [(field, old.get(field, _ABSENT), new.get(field, _ABSENT)) for field in fields]
    differences = [(field, before, after) for field, before, after in pairs if _show(before) != _show(after)]
    return differences or [("task", stored.to_json(), asked.to_json())]


def _flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    leaves: dict[str, Any] = {}
    for name, value in data.items():
        leaves |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) and value else {f"{prefix}{name}": value}
    return leaves


def _show(value: Any) -> str:
    return "absent" if value is _ABSENT else json.dumps(value, sort_keys=True)
