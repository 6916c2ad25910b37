"""Forms and JSON documents into actions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from autoscout.analysis.labels import short_worker
from autoscout.common import document
from autoscout.common.text import suggestion
from autoscout.core.actions import Action, ActionKind
from autoscout.core.config import Config, Value
from autoscout.core.errors import ConfigError, Fault
from autoscout.study.campaign import duration_s
from autoscout.web.live import LiveView

WHERE = "action"

ASKABLE = tuple(kind for kind in ActionKind if kind is not ActionKind.RUN)
"""What somebody may ask for; runs are noted by the processes that run."""


def read_action(fields: Mapping[str, Any], view: LiveView) -> Action:
    """The action that somebody asks for.

    Args:
        fields: `kind`, and with `budget`: `trials` or `time` to add; with `try`: `settings` (`threads=8, flash=on`) or a mapping
            `config`; with `invalid`: `trial`; with `describe`: any of `title`, `tags`, `note`, `archived`. `reason` with any of them.
        view: The study.

    Raises:
        ConfigError: all faults at once.
    """
    try:
        kind = ActionKind(str(fields.get("kind", "")))
        if kind not in ASKABLE:
            raise ValueError
    except ValueError:
        kinds = ", ".join(each.value for each in ASKABLE)
        raise ConfigError(Fault(where=WHERE, field="kind", value=repr(fields.get("kind")), rule=f"must be one of: {kinds}")) from None
    reason = str(fields.get("reason", "")).strip()
    if kind is ActionKind.BUDGET:
        return Action(kind=kind, reason=reason, budget=_budget(fields, view))
    if kind is ActionKind.TRY:
        return Action(kind=kind, reason=reason, config=_config(fields, view))
    if kind is ActionKind.INVALID:
        return Action(kind=kind, reason=reason, trial=_trial(fields, view))
    if kind is ActionKind.DESCRIBE:
        return Action(kind=kind, reason=reason, words=_words(fields))
    return Action(kind=kind, reason=reason)


def _budget(fields: Mapping[str, Any], view: LiveView) -> dict[str, float]:
    """The bounds that were given, raised by what is to be added."""
    budget, bounds, faults = view.budget, dict[str, float](), list[Fault]()
    for name, field in (("trials", "trials"), ("wall_s", "time")):
        text, bound = str(fields.get(field, "") or "").strip(), getattr(budget, name)
        if not text:
            continue
        if bound is None:
            faults.append(Fault(where=WHERE, field=field, rule="the study has no such bound", fix="Leave it empty"))
            continue
        try:
            added = float(int(text)) if field == "trials" else duration_s(text)
            if added <= 0:
                raise ValueError("must be above zero")
            bounds[name] = bound + added
        except (ValueError, OverflowError) as error:
            faults.append(Fault(where=WHERE, field=field, value=repr(text), rule=str(error)))
    if not bounds and not faults:
        faults.append(Fault(where=WHERE, field="trials", rule="say how much to add: trials, or time such as 30m"))
    if faults:
        raise ConfigError(faults)
    return bounds


def _words(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What changes of a description; a form sends all as text, a document lists and truth values."""
    words = {name: fields[name] for name in ("title", "note", "tags", "archived") if name in fields}
    words |= {name: words[name].strip().replace("\r\n", "\n") for name in ("title", "note") if isinstance(words.get(name), str)}
    if isinstance(words.get("tags"), str):
        words["tags"] = list(dict.fromkeys(filter(None, (tag.strip() for tag in words["tags"].split(",")))))
    if words.get("archived") in ("yes", "no"):
        words["archived"] = words["archived"] == "yes"
    return words


def _config(fields: Mapping[str, Any], view: LiveView) -> Config:
    config = fields.get("config")
    settings = dict(config) if isinstance(config, Mapping) else read_settings(str(fields.get("settings", "")))
    names = [knob.name for knob in view.about.knobs] or sorted({name for trial in view.trials for name in trial.config})
    faults = [
        Fault(where=WHERE, field=str(name), rule="there is no such knob", fix=suggestion(str(name), names))
        for name in settings
        if name not in names
    ]
    if faults:
        raise ConfigError(faults)
    try:
        return Config(settings)
    except (TypeError, ValueError) as error:
        raise ConfigError(Fault(where=WHERE, field="config", rule=str(error))) from error


def read_settings(text: str) -> dict[str, Value]:
    """`threads=8, flash=on` as values, read as in a campaign file.

    Raises:
        ConfigError: one fault per part that does not read so.
    """
    settings: dict[str, Value] = {}
    faults: list[Fault] = []
    for part in filter(None, (part.strip() for line in text.splitlines() for part in line.split(","))):
        name, equals, raw = part.partition("=")
        if not equals or not name.strip():
            faults.append(Fault(where=WHERE, field="settings", value=repr(part), rule="must read NAME=VALUE", fix="Example: threads=8"))
            continue
        try:
            settings[name.strip()] = document.compose(raw, WHERE).value if raw.strip() else ""
        except ConfigError:
            settings[name.strip()] = raw.strip()
    if faults:
        raise ConfigError(faults)
    return settings


def _trial(fields: Mapping[str, Any], view: LiveView) -> int:
    try:
        number = int(str(fields.get("trial", "")))
    except ValueError:
        number = -1
    if number not in view.by_number:
        raise ConfigError(Fault(where=WHERE, field="trial", value=repr(fields.get("trial")), rule="there is no such trial"))
    return number


WAITS = dict.fromkeys((ActionKind.STOP, ActionKind.BUDGET, ActionKind.TRY, ActionKind.INVALID), "waits for a process that runs the study")
"""What is said of an action that has no answer."""


def describe_actions(actions: Iterable[Action]) -> list[tuple[str, str]]:
    """What was asked and what came of it, in words, the newest first."""
    rows = []
    for action in reversed(list(actions)):
        if action.kind is ActionKind.RUN:
            rows.append((f"run by {short_worker(action.worker)}", action.answer or "under way, or ended without a word"))
            continue
        what = {
            ActionKind.DESCRIBE: "describe: " + ", ".join(action.words),
            ActionKind.STOP: "stop",
            ActionKind.BUDGET: "budget: " + ", ".join(f"{name} {value:g}" for name, value in action.budget.items()),
            ActionKind.TRY: "try " + ", ".join(f"{name}={value}" for name, value in action.config.items()),
            ActionKind.INVALID: f"trial #{action.trial} is invalid",
        }[action.kind]
        rows.append((what + (f" ({action.reason})" if action.reason else ""), action.answer or WAITS.get(action.kind, "done")))
    return rows


__all__ = ["describe_actions", "read_action", "read_settings"]
