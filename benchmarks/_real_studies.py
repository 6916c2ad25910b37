"""Studies of real programs, whole: run into a folder, then told as figures and as tables of a page."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from autoscout.analysis.price import foremost
from autoscout.common.text import plural
from autoscout.core.origin import Phase
from autoscout.core.trial import Trial
from autoscout.report.publish import publish
from autoscout.study.assemble import Quiet, look, run
from autoscout.study.campaign import Campaign
from autoscout.study.folder import Folder
from autoscout.study.outcome import Outcome
from autoscout.study.setup import prepare


class _Telling(Quiet):
    """Tells after every trial what the study has come to."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell

    def finished(self, trial: Trial) -> None:  # noqa: ARG002
        self._tell()


def whole_study(campaign: Campaign, results: Path, tell: Callable[[Outcome], None] | None = None) -> Outcome:
    """The study of a campaign with its final and its hand-over, as `autoscout tune` does it; one that is in `results` is resumed.

    Args:
        campaign: What to tune.
        results: Its folder is made there.
        tell: Called after every trial with what the study has come to, for those who cannot wait for its end.
    """
    setup = prepare(campaign)
    folder = Folder(results / setup.name)
    observer = None if tell is None else _Telling(lambda: tell(look(setup, folder)))
    return publish(run(setup, folder, observer=observer))


def figures(outcome: Outcome) -> dict[str, Any]:
    """What a page tells of one study."""
    summary = outcome.summary
    final = [trial for trial in outcome.trials if trial.proposal.origin.phase is Phase.FINAL]
    sides = {"default": summary.default, "best": summary.best}
    return {
        "study": summary.study,
        "metric": summary.task.objective.metric,
        "verdict": summary.verdict.value,
        "reason": summary.reason,
        "gain": summary.gain.to_json(),
        **{name: {"value": side.value, "runs": side.runs, "spread": side.spread} if side else None for name, side in sides.items()},
        "costs": [str(cost) for cost in foremost(summary.costs)],
        "changes": [change.to_json() for change in summary.changes],
        "contributions": [one.to_json() for one in outcome.contributions],
        "handed_over": list(outcome.handed_over),
        "trials": {phase.value: sum(trial.proposal.origin.phase is phase for trial in outcome.trials) for phase in Phase},
        "failed": sum(trial.measurement.status.failed for trial in outcome.trials),
        "wall_s": summary.spent.wall_s,
        "ended": outcome.stop and outcome.stop.value,
        "disturbed": _disturbed(final),
        "began": min((trial.started_s for trial in outcome.trials), default=None),
    }


def _disturbed(final: Sequence[Trial]) -> dict[str, float]:
    """Shares of the machine that others used during the trials of the final, median and largest, and how many trials were dirty."""
    shares = [float(trial.measurement.conditions.get("other_cpu_share", 0.0)) for trial in final]
    dirty = sum(bool(trial.measurement.conditions.get("dirty", 0.0)) for trial in final)
    return {"median": statistics.median(shares), "largest": max(shares), "dirty": dirty, "trials": len(final)} if shares else {}


def gain_text(found: Mapping[str, Any]) -> str:
    """A gain with its interval."""
    gain = found["gain"]
    if gain["low"] is None:
        return "no interval"
    return f"{gain['ratio']:.3f}x [{gain['low']:.3f}, {gain['high']:.3f}], {gain['pairs']} pairs"


def side_text(side: Mapping[str, Any] | None) -> str:
    """The value of a configuration with its spread."""
    if side is None or side["value"] is None:
        return "did not run"
    spread = "" if side["spread"] is None else f" +- {side['spread']:.1%}"
    return f"{side['value']:,.4g}{spread} ({plural(side['runs'], 'run')})"


def change_lines(found: Mapping[str, Any]) -> list[str]:
    """The changed knobs as rows: from, to, contribution, and whether it was measured."""
    worth = {one["knob"]: one for one in found["contributions"]}
    lines = ["| knob | from | to | contributes | |", "|---|---|---|---|---|"]
    for change in found["changes"]:
        one = worth.get(change["knob"], {"ratio": None, "low": None, "high": None, "source": "unknown"})
        interval = "" if one["low"] is None else f" [{one['low']:.3f}, {one['high']:.3f}]"
        ratio = "" if one["ratio"] is None else f"{one['ratio']:.3f}x{interval}"
        lines.append(f"| `{change['knob']}` | {change['default']} | {change['best']} | {ratio} | {one['source']} |")
    return lines


def quiet_text(found: Mapping[str, Any]) -> str:
    """How quiet the machine was during the final, in one sentence."""
    shares = found["disturbed"]
    if not shares:
        return "There was no final."
    return (
        f"During the final other work used {shares['median']:.0%} of the machine (median of the trials; at most {shares['largest']:.0%}); "
        f"{shares['dirty']} of its {shares['trials']} trials count as disturbed."
    )


__all__ = ["change_lines", "figures", "gain_text", "quiet_text", "side_text", "whole_study"]
