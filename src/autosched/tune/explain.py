"""Why these settings, now: decisions in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from autoscout.common.text import show

if TYPE_CHECKING:  # whoever only shows dates does not wait for the simulator
    from autosched.tune.causal.graph import Graph
    from autosched.tune.loop import Decision

DATED_S = 1e9  # seconds above which a clock is taken for that of the epoch: from 2001 on


def moment(at_s: float, from_s: float = 0.0) -> str:
    """A date where the trace has dates, else hours since `from_s`."""
    if at_s >= DATED_S:
        return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M")
    return f"hour {(at_s - from_s) / 3_600:.1f}"


def why(decision: Decision, from_s: float = 0.0) -> str:
    """One decision: the state of the cluster, what was changed, what was expected of it and why, and what came of it."""
    state = f"{decision.unfinished} jobs in the system, {decision.waiting} of them waiting, {decision.load:.2f} times the GPUs wanted"
    text = f"{moment(decision.at_s, from_s)}: {state}. Tried {decision.simulations} simulations on {decision.words}"
    if decision.rejected:
        text += f", {decision.rejected} more were rejected by their predictions"
    if not decision.changed:
        return f"{text}. Nothing was changed: the best found was {decision.predicted:.3f} times as good as the settings in force."
    changes = ", ".join(change(name, old, new) for name, (old, new) in decision.changes().items())
    text += f". Changed {changes}: predicted to be {decision.predicted:.3f} times as good"
    worth = sorted(((value, name) for name, value in decision.contributions.items() if value > 1.001), reverse=True)
    if worth:
        text += ", " + ", ".join(f"{value:.3f} times by {name}" for value, name in worth[:3])
    if math.isfinite(decision.realised):
        text += f"; on the jobs that then came it was {decision.realised:.3f} times as good"
    return text + "."


def told_steps(decision: Decision) -> str:
    """What each part of the loop did, a line each."""
    return "\n".join(f"{number}. {step}." for number, step in enumerate(decision.steps, 1))


def change(name: str, old: object, new: object) -> str:
    """A setting before and after, worded the same wherever it is shown."""
    before, after = ("unset" if value is None else show(value) for value in (old, new))
    return f"{name} {before} -> {after}"


def trust(decisions: Sequence[Decision]) -> str:
    """How predicted gains compare with realised ones, in a sentence."""
    pairs = [(each.predicted, each.realised) for each in decisions if each.changed and math.isfinite(each.realised)]
    if not pairs:
        return "No change was made whose gain could be checked."
    predicted, realised = (math.exp(sum(math.log(max(pair[side], 1e-9)) for pair in pairs) / len(pairs)) for side in (0, 1))
    return f"{len(pairs)} changes were predicted to gain {predicted:.3f} times each and gained {realised:.3f} times (geometric means)."


def causes(graph: Graph) -> str:
    """What the graph says, in a sentence per setting that acts on something."""
    acting = {knob: [metric for metric in graph.metrics if (knob, metric) in graph.edges] for knob in graph.knobs}
    lines = [f"{knob} acts on {', '.join(metrics)}." for knob, metrics in acting.items() if metrics]
    idle = [knob for knob, metrics in acting.items() if not metrics]
    if idle:
        lines.append(f"No effect of {', '.join(idle)} shows.")
    return " ".join([*lines, f"Learned by {graph.method}."])
