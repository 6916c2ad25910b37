"""Who measured what, when: a bar per trial in a lane per worker; of a large study how many ended when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from autoscout.analysis.curves import busy_moments, ordered
from autoscout.analysis.labels import short_worker, shorten
from autoscout.common.draw import Scale, box, label, line, middle
from autoscout.common.markup import Markup, join
from autoscout.common.text import show_duration
from autoscout.core.task import Task
from autoscout.core.trial import Status, Trial
from autoscout.report.elements import legend, plot, scrolled
from autoscout.report.view import StudyView

MOST_BARS = 800
"""Trials that get a bar of their own."""
MOST_LANES = 16
_WIDTH, _LEFT, _RIGHT, _TOP = 900, 150, 880, 8
_LANE, _BINS, _HEIGHT = 22, 160, 180
_WORDS = {"ok": "worked", "broken": "breaks a limit", "bounded": "stopped early", "failed": "failed"}


def kind_of(task: Task, trial: Trial) -> str:
    """How a trial fared, in the words of the legend's classes: ok, broken, bounded or failed."""
    if trial.measurement.status is Status.BOUNDED:
        return "bounded"
    if not trial.ok:
        return "failed"
    return "ok" if task.objective.loss(trial.measurement) != float("inf") else "broken"


def timeline(task: Task, trials: Sequence[Trial]) -> Markup | None:
    """The picture; pauses, during which nothing ran, are left out. None when nothing ran for any time."""
    ran = [trial for trial in ordered(trials) if trial.finished_s > 0]
    moments = busy_moments(ran)
    if not moments or max(moments.values()) <= 0:
        return None
    scale = Scale(low=0.0, high=max(moments.values()), start=_LEFT, end=_RIGHT)
    lanes = _lanes(ran) if len(ran) <= MOST_BARS else {}
    if not lanes or len({lane for lane, _ in lanes.values()}) > MOST_LANES:
        parts, height = _bins(task, ran, moments, scale)
    else:
        parts, height = _bars(task, ran, moments, scale, lanes)
    for tick in scale.ticks(6):
        x = scale.place(tick)
        parts.insert(0, line(x, _TOP, x, height - 26, "grid"))
        text = show_duration(tick) if tick else "0"
        parts.append(label(text, middle(text, x, 0, _WIDTH), height - 10, class_="tick", text_anchor="middle"))
    title = "What each worker measured when, and how it ended; pauses are left out"
    return plot(*parts, width=_WIDTH, height=height, title=title, kind="timeline")


def timeline_section(view: StudyView) -> Markup:
    """The inside of the section; nothing where no trial took any time."""
    task, trials = view.summary.task, [*view.trials, *view.invalid]
    drawing = timeline(task, trials)
    if drawing is None:
        return Markup("")
    kinds = {kind_of(task, trial) for trial in trials}
    keys = [(f"run {kind}", text) for kind, text in _WORDS.items() if kind in kinds]
    return join([legend(keys), scrolled(drawing)])


def _lanes(trials: Sequence[Trial]) -> dict[int, tuple[int, str]]:
    """Index of a trial -> its lane and worker; trials that one worker ran at the same time get lanes of their own."""
    lanes: dict[int, tuple[int, str]] = {}
    names: list[str] = []  # of the lanes
    free_s: list[float] = []  # when each is free again
    order = sorted(range(len(trials)), key=lambda i: (trials[i].started_s, trials[i].number))
    for index in order:
        trial = trials[index]
        own = (lane for lane, name in enumerate(names) if name == trial.worker and free_s[lane] <= trial.started_s + 1e-9)
        lane = next(own, len(names))
        if lane == len(names):
            names.append(trial.worker)
            free_s.append(0.0)
        free_s[lane] = trial.finished_s
        lanes[index] = lane, trial.worker
    return lanes


def _bars(
    task: Task, trials: Sequence[Trial], moments: dict[float, float], scale: Scale, lanes: dict[int, tuple[int, str]]
) -> tuple[list[Markup], float]:
    order = {lane: row for row, (lane, _) in enumerate(sorted(set(lanes.values()), key=lambda pair: (pair[1], pair[0])))}
    parts = []
    for lane, worker in sorted(set(lanes.values())):
        y = _TOP + _LANE * order[lane]
        parts.append(label(shorten(short_worker(worker), 20), _LEFT - 10, y + 15, class_="tick", text_anchor="end"))
    for index, (lane, _) in lanes.items():
        trial = trials[index]
        start, end = (scale.place(moments[moment]) for moment in (trial.started_s, trial.finished_s))
        attributes = {"class_": f"run {kind_of(task, trial)} {trial.proposal.origin.phase.value}", "data_n": trial.number, "rx": 2}
        parts.append(box(start, _TOP + _LANE * order[lane] + 3, max(2.0, end - start - 1), _LANE - 6, **attributes))
    return parts, _TOP + _LANE * len(order) + 32


def _bins(task: Task, trials: Sequence[Trial], moments: dict[float, float], scale: Scale) -> tuple[list[Markup], float]:
    """How many trials ended in each part of the time, by how they ended."""
    counts: Counter[tuple[int, str]] = Counter()
    for trial in trials:
        part = int(moments[trial.finished_s] / scale.high * _BINS)
        counts[min(part, _BINS - 1), kind_of(task, trial)] += 1
    most = max(sum(counts[part, kind] for kind in _WORDS) for part in range(_BINS))
    up = Scale(low=0.0, high=most * 1.05, start=_HEIGHT - 30, end=_TOP)
    wide = (_RIGHT - _LEFT) / _BINS
    parts = [label(f"{tick:g}", _LEFT - 8, up.place(tick) + 4, class_="tick", text_anchor="end") for tick in up.ticks(4)]
    parts.append(label("trials that ended", 8, _TOP + 12, class_="axis-name"))
    for part in range(_BINS):
        below = 0
        for kind in _WORDS:
            if count := counts[part, kind]:
                top = up.place(below + count)
                parts.append(box(_LEFT + part * wide, top, wide - 0.6, up.place(below) - top, class_=f"run {kind}"))
                below += count
    return parts, _HEIGHT


__all__ = ["kind_of", "timeline", "timeline_section"]
