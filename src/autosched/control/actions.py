"""What people ask of a controller. Every request is a row of the ledger; the controller carries it out at its next look."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autosched.control.bounds import refusals
from autosched.control.ledger import Entry, Ledger
from autosched.tune.explain import change
from autoscout.common.text import suggestion
from autoscout.core.config import Config, Value
from autoscout.core.errors import ConfigError, Fault

CAN_UNDO = ("applied", "kept")


def require_changing(mode: str) -> None:
    """Refuse requests for changes where the controller observes only.

    Raises:
        ConfigError: it does.
    """
    if mode == "observe":
        rule, fix = "the controller observes and changes nothing", "Set mode: propose or mode: apply, and start it again"
        raise ConfigError(Fault(where="mode", value=mode, rule=rule, fix=fix))


def in_force(ledger: Ledger) -> Config:
    """The settings that were last seen.

    Raises:
        ConfigError: the cluster was never looked at.
    """
    sample = ledger.last_sample()
    if sample is None:
        rule = "no controller has looked at this cluster yet"
        raise ConfigError(Fault(where="cluster", value=ledger.cluster, rule=rule, fix="Start `autoscout sched control`"))
    return Config(sample[1]["settings"])


def propose(ledger: Ledger, request: Mapping[str, Any], by: str, at_s: float, *, approved: bool = False) -> Entry:
    """Ask for other settings.

    Args:
        ledger: Of the cluster.
        request: Knob -> value; the others stay.
        by: Who asks.
        at_s: Now.
        approved: Whether it needs nobody's approval any more.

    Raises:
        ConfigError: unknown knobs, values of another type, and what the bounds of the controller forbid; all at once.
    """
    now = in_force(ledger)
    faults = []
    values: dict[str, Value] = {}
    for name, value in request.items():
        if name not in now:
            faults.append(Fault(where="propose", field=name, rule="no such knob", fix=suggestion(name, now)))
            continue
        try:
            values[name] = _like(now[name], value)
        except ValueError:
            rule = f"must be {'true or false' if isinstance(now[name], bool) else type(now[name]).__name__}"
            faults.append(Fault(where="propose", field=name, value=repr(value), rule=rule))
    sample = ledger.last_sample()
    faults += refusals(sample[1].get("allowed", {}) if sample else {}, now, values)
    if not request:
        faults.append(Fault(where="propose", rule="names no setting", fix="KNOB=VALUE"))
    if faults:
        raise ConfigError(faults)
    after = now.extend(values)
    state = "approved" if approved else "proposed"
    changes = ", ".join(change(name, now[name], value) for name, value in values.items())
    entry = Entry(at_s=at_s, state=state, kind="operator", before=now, after=after, words=f"asked for by {by}: {changes}", by=by)
    return ledger.add(entry, state, entry.words)


def approve(ledger: Ledger, number: int, by: str, at_s: float) -> Entry:
    """Approve a proposal.

    Raises:
        ConfigError: there is none with this number, or it no longer waits.
    """
    entry = _expect(ledger.entry(number), "proposed")
    return ledger.move(entry, "approved", at_s, "approved", f"approved by {by}", by=by)


def refuse(ledger: Ledger, number: int, by: str, at_s: float) -> Entry:
    """Refuse a proposal.

    Raises:
        ConfigError: there is none with this number, or it no longer waits.
    """
    entry = _expect(ledger.entry(number), "proposed")
    return ledger.move(entry, "refused", at_s, "refused", f"refused by {by}", why=f"refused by {by}")


def roll_back(ledger: Ledger, number: int, by: str, words: str, at_s: float) -> Entry:
    """Ask for the settings before a change again.

    Raises:
        ConfigError: it was not applied, it is not the last change, or its rollback waits already.
    """
    entry = ledger.entry(number)
    if entry.state not in CAN_UNDO or entry.kind == "rollback":
        rule = f"is {entry.state}: only a change that is in force can be rolled back"
        raise ConfigError(Fault(where="decision", field="id", value=str(number), rule=rule, fix="autoscout sched history lists them"))
    later = [each.id for each in ledger.in_state(*CAN_UNDO, "applying", "unsure") if each.id > number and each.kind != "rollback"]
    if later:
        rule = f"was followed by change {later[-1]}: only the last one can be rolled back"
        raise ConfigError(Fault(where="decision", field="id", value=str(number), rule=rule, fix=f"Roll back {later[-1]} first"))
    if any(each.of == number for each in ledger.in_state("approved")):
        raise ConfigError(Fault(where="decision", field="id", value=str(number), rule="is being rolled back already"))
    undo = Entry(
        at_s=at_s, state="approved", kind="rollback", before=entry.after, after=entry.before, words=words, by=by, of=number
    )  # fmt: skip
    return ledger.add(undo, "rollback", words)


def _expect(entry: Entry, state: str) -> Entry:
    if entry.state != state:
        rule = f"is {entry.state}, not {state}"
        raise ConfigError(Fault(where="decision", field="id", value=str(entry.id), rule=rule, fix="autoscout sched history lists them"))
    return entry


def _like(now: Value, value: Any) -> Value:
    """A value of the same type as the one in force."""
    if isinstance(now, bool):
        words = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
        text = str(value).lower()
        if text not in words:
            raise ValueError(value)
        return words[text]
    if isinstance(now, int):
        if float(value) != int(float(value)):
            raise ValueError(value)
        return int(float(value))
    if isinstance(now, float):
        number = float(value)
        if number != number or number in (float("inf"), float("-inf")):
            raise ValueError(value)
        return number
    return str(value)
