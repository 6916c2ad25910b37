"""Decisions in words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autosched.control.ledger import STATES, Entry, Line
from autosched.tune.explain import change, moment
from autoscout.common.text import show_duration

MOST_WHY = 120  # characters of a reason in a line
LATE_S = 60.0  # besides five looks, after which a controller is said not to run
ODD = ("changed outside", "no answer", "clock", "left out", "failed", "unsure")
"""Events of the audit log that an operator should look at."""
UNMADE = ("refused", "failed", "unsure", "undone")
"""States of which a line says why."""


def late(seen_s: float, look_s: float, now_s: float) -> str:
    """That nobody has looked at a cluster for some time; empty where somebody has.

    Args:
        seen_s: The last look.
        look_s: Time between two looks.
        now_s: Now.
    """
    age_s = now_s - seen_s
    if age_s < LATE_S + 5 * look_s:
        return ""
    return f"The last look was {show_duration(age_s)} ago: the controller does not run, or the cluster does not answer."


def one_line(entry: Entry) -> str:
    """A decision in a line."""
    gain = f"{entry.predicted:.3f}x" if math.isfinite(entry.predicted) else ""
    measured = f" measured {entry.measured:.3f}x" if math.isfinite(entry.measured) else ""
    changes = ", ".join(change(name, old, new) for name, (old, new) in entry.changes.items())
    why = f" ({entry.why.splitlines()[0][:MOST_WHY]})" if entry.why and entry.state in UNMADE else ""
    return " ".join(f"{entry.id} {moment(entry.at_s)} {entry.kind} {entry.state} {gain}{measured} {changes}{why}".split())


def explanation(entry: Entry, lines: Sequence[Line] = ()) -> str:
    """Why a decision was made, how sure it was, what each change does by itself, and what became of it."""
    sentences = [
        f"Decision {entry.id} ({entry.kind}), {moment(entry.at_s)}: {entry.state}, that is, {STATES[entry.state]}.",
        entry.words,
    ]
    if math.isfinite(entry.predicted) and entry.changes:
        sentences.append(
            f"Predicted gain {entry.predicted:.3f} times; nine outcomes in ten should lie between {entry.low:.3f} and {entry.high:.3f}."
            " Simulated."
        )
    for name, effect in sorted(entry.contributions.items(), key=lambda item: -item[1]):
        old, new = entry.changes.get(name, (None, None))
        sentences.append(f"  {change(name, old, new)}: taken back alone, the outcome would be {effect:.3f} times as long.")
    if math.isfinite(entry.measured):
        sentences.append(f"Measured gain {entry.measured:.3f} times.")
    if entry.why:
        sentences.append(f"Why it is so: {entry.why}.")
    if entry.diff:
        sentences += ["What was changed:", entry.diff.rstrip()]
    for _, at_s, _, event, words in lines:
        first = words.splitlines()[0] if words else ""
        sentences.append(f"  {moment(at_s)} {event}{f': {first}' if first and not entry.words.startswith(first) else ''}")
    return "\n".join(sentences)
