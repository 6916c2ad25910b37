"""What other settings would change for whom: mean times in the system by user, size and queue, as a table and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autosched.sim.metrics import SIZES
from autosched.sim.plot import page
from autosched.sim.result import Result
from autosched.tune.case import Case
from autosched.tune.loop import ModeRun
from autoscout.common.draw import WIDTH, box, label, line
from autoscout.common.markup import Markup, tag
from autoscout.common.text import show_duration

MOST_NAMES = 8
"""Users and queues that are shown each: those with the most jobs."""
_LEFT, _STEP = 190, 22  # pixels before the bars, and from one to the next
_BETTER, _WORSE = "#228833", "#ee6677"


@dataclass(frozen=True, kw_only=True)
class Share:
    """Some of the jobs of a window, under the settings in force and under others.

    Attributes:
        by: `user`, `size` or `queue`.
        name: Whose jobs.
        jobs: How many.
        before_s, after_s: Mean time in the system inside the window, with the work that is left at its end.
    """

    by: str
    name: str
    jobs: int
    before_s: float
    after_s: float

    @property
    def gain(self) -> float:
        return self.before_s / self.after_s if self.after_s > 0 else 1.0


def shares(case: Case, before: ModeRun, after: ModeRun) -> list[Share]:
    """What changes from one run to another, for whom; those with the most jobs first, sizes in order."""
    one, other = _spent_s(case, before.result), _spent_s(case, after.result)
    inside = np.isfinite(one) & np.isfinite(other)
    trace = before.result.trace
    groups = []
    for low, high, name in SIZES:
        groups += _share("size", f"{name} GPUs", inside & (trace.gpus > low) & (trace.gpus <= high), one, other)
    for by, labels in (("user", trace.user), ("queue", trace.vc)):
        if len(labels.names) < 2:
            continue
        counts = np.bincount(labels.codes[inside], minlength=len(labels.names))
        for code in np.argsort(-counts, kind="stable")[:MOST_NAMES].tolist():
            groups += _share(by, labels.names[code] or "(none)", inside & (labels.codes == code), one, other)
    return groups


def _share(by: str, name: str, mine: NDArray[np.bool_], one: NDArray[np.float64], other: NDArray[np.float64]) -> list[Share]:
    jobs = int(mine.sum())
    return [Share(by=by, name=name, jobs=jobs, before_s=float(one[mine].mean()), after_s=float(other[mine].mean()))] if jobs else []


def _spent_s(case: Case, result: Result) -> NDArray[np.float64]:
    """Seconds that each job was in the system inside the window, and the work it has left; not a number for those that were not there."""
    submit = result.trace.submit_s
    until = np.where(result.ended, result.end_s, case.to_s)
    spent = until - np.maximum(submit, case.from_s) + np.where(result.ended, 0.0, result.remaining_s)
    here = (submit < case.to_s) & ~(result.ended & (result.end_s <= case.from_s))
    return np.where(here, spent, np.nan)


def table(found: Sequence[Share]) -> list[str]:
    """As lines of Markdown."""
    lines = ["| whose jobs | jobs | mean time in system | would be | gain |", "|---|---|---|---|---|"]
    for each in found:
        name = each.name.replace("|", "\\|")
        times = f"{show_duration(each.before_s)} | {show_duration(each.after_s)}"
        lines.append(f"| {each.by}: {name} | {each.jobs:,} | {times} | {each.gain:.3f}x |")
    return lines


def picture(found: Sequence[Share], title: str) -> str:
    """A bar for each share, from 1: to the right for whom it gets better, to the left for whom it gets worse."""
    groups = [[each for each in found if each.by == by] for by in dict.fromkeys(each.by for each in found)]
    logs = [abs(np.log2(max(each.gain, 1e-3))) for each in found]
    scale = (WIDTH - _LEFT - 150) / 2 / max(0.1, *logs) if logs else 1.0
    middle = _LEFT + 40 + (WIDTH - _LEFT - 150) / 2
    parts: list[Markup] = []
    y = 0.0
    for group in groups:
        parts.append(label(f"by {group[0].by}: mean time in the system, times better", 14, y + 18, font_size=14))
        y += 30
        for each in group:
            reach = float(np.log2(max(each.gain, 1e-3))) * scale
            colour = _BETTER if reach >= 0 else _WORSE
            name = each.name if len(each.name) <= 20 else each.name[:19] + "…"
            parts.append(label(f"{name} ({each.jobs:,})", _LEFT, y + 12, font_size=12, text_anchor="end"))
            parts.append(box(min(middle, middle + reach), y, max(abs(reach), 1.0), 15, fill=colour))
            text = {"x": middle + reach + 6, "text_anchor": "start"} if reach >= 0 else {"x": middle + reach - 6, "text_anchor": "end"}
            parts.append(label(f"{each.gain:.2f}x", y=y + 12, font_size=12, **text))  # type: ignore[arg-type]
            y += _STEP
        parts.append(line(middle, y - _STEP * len(group) - 4, middle, y, stroke="#888"))
        y += 16
    return page([tag("g", *parts)], title, height=y)


__all__ = ["Share", "picture", "shares", "table"]
