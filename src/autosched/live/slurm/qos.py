"""Limits of a quality of service, which Slurm keeps in its accounting and not in slurm.conf."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autosched.live_scheduler import LiveError
from autoscout.core.config import Config, Value
from autoscout.core.errors import Fault

LIMITS = {"priority": "Priority", "max_jobs_per_user": "MaxJobsPerUser", "max_submit_per_user": "MaxSubmitJobsPerUser"}
"""What operators call a limit -> what sacctmgr calls it. -1 is no limit."""
_SHOWN = ("Name", "Priority", "MaxJobsPU", "MaxSubmitPU")
NONE = -1
MOST = 1_000_000

Ask = Callable[..., str]


def knob(name: str, limit: str) -> str:
    """The name of a limit as a setting."""
    return f"qos {name} {limit}"


def knobs(names: Sequence[str]) -> set[str]:
    """The names of all limits as settings."""
    return {knob(name, limit) for name in names for limit in LIMITS}


def read(ask: Ask, names: Sequence[str]) -> dict[str, Value]:
    """The limits of some qualities of service.

    Raises:
        LiveError: one is not there, or accounting does not answer.
    """
    if not names:
        return {}
    text = ask("sacctmgr", "--noheader", "--parsable2", "--readonly", "show", "qos", f"format={','.join(_SHOWN)}")
    rows = {row[0]: row[1:] for row in (line.split("|") for line in text.splitlines()) if len(row) == len(_SHOWN)}
    missing = [name for name in names if name not in rows]
    if missing:
        raise LiveError(Fault(where="sacctmgr show qos", value=", ".join(missing), rule="there is no such quality of service"))
    return {
        knob(name, limit): int(cell) if cell.strip().lstrip("-").isdigit() else NONE
        for name in names
        for limit, cell in zip(LIMITS, rows[name], strict=True)
    }


def faults_of(after: Config, names: Sequence[str]) -> list[Fault]:
    """Limits that sacctmgr would not take."""
    mine = knobs(names)
    rule = f"must be a whole number up to {MOST:,}, or {NONE} for no limit"
    return [
        Fault(where="sacctmgr", field=name, value=repr(value), rule=rule)
        for name, value in after.items()
        if name in mine and (isinstance(value, bool) or not isinstance(value, int) or not NONE <= value <= MOST)
    ]


def changes(before: Mapping[str, Value], after: Mapping[str, Value], names: Sequence[str]) -> dict[str, dict[str, int]]:
    """Quality of service -> limits that differ."""
    limits: dict[str, dict[str, int]] = {}
    for name in names:
        for limit, word in LIMITS.items():
            value = after.get(knob(name, limit), before.get(knob(name, limit)))
            if value != before.get(knob(name, limit)) and isinstance(value, int):
                limits.setdefault(name, {})[word] = value
    return limits


def send(ask: Ask, target: Mapping[str, Mapping[str, int]]) -> None:
    """Set limits, one quality of service after the other."""
    for name, limits in target.items():
        ask(
            "sacctmgr",
            "--immediate",
            "modify",
            "qos",
            "where",
            f"name={name}",
            "set",
            *(f"{word}={value}" for word, value in limits.items()),
        )


def told(target: Mapping[str, Mapping[str, int]]) -> str:
    """What would be set, for people."""
    return "".join(f"qos {name}: {word}={value}\n" for name, limits in target.items() for word, value in limits.items())
