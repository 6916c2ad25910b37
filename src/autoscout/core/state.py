"""Whether somebody works on a study, and how the last run of it ended: told by the actions of its runs."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from autoscout.core.actions import Action, ActionKind, Pulse
from autoscout.core.worker import is_gone

SILENT_S = 6 * 3600.0
"""A process on another machine that has given no sign of life for so long is taken for dead; claims are kept for as long."""


class State(StrEnum):
    """How a study stands."""

    RUNNING = "running"
    WAITING = "waiting"  # nothing has been measured, and nobody is at it
    FINISHED = "finished"  # its search and its final are over, or the budget is used
    INTERRUPTED = "interrupted"  # somebody ended it before that; it can be resumed
    FAILED = "failed"  # it gave up: too many failures, or an error
    DEAD = "dead"  # the process that ran it is gone without a word: killed, or its machine is off
    IDLE = "idle"  # nobody is at it, and its store does not say how it ended


def answer_of(state: State, words: str) -> str:
    """What a run says of its end."""
    return f"{state.value}: {words}"


def state_of(actions: Sequence[Action], pulse: Pulse, now_s: float, seen_s: float = 0.0) -> State:
    """How a study stands.

    Args:
        actions: All of it.
        pulse: How far it is.
        now_s: In seconds since the epoch.
        seen_s: When something of it was last seen to change.
    """
    runs = [action for action in actions if action.kind is ActionKind.RUN]
    alive = [run for run in runs if not run.answer and not is_gone(run.worker) and now_s - max(run.at_s, seen_s) < SILENT_S]
    if pulse.workers or alive:
        return State.RUNNING
    if not runs:
        return State.IDLE if pulse.trials > 0 else State.WAITING
    word = runs[-1].answer.partition(":")[0]
    return State(word) if word in {each.value for each in State} else State.DEAD


__all__ = ["State", "answer_of", "state_of"]
