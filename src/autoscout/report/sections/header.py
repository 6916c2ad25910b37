"""What a page says first: the goal, the verdict with its gain, and what it cost."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence

from autoscout.analysis.labels import one_line, show_limit
from autoscout.analysis.summary import Summary
from autoscout.analysis.verdict import Finalist, Verdict
from autoscout.common.draw import Scale, label, line, middle
from autoscout.common.markup import Markup, badge, join, tag
from autoscout.common.text import show, show_duration, show_gain, show_number
from autoscout.core.secrecy import without_secrets
from autoscout.core.trial import Fidelity
from autoscout.report.elements import comma_separated, plot

_FOREST_WIDTH, _FOREST_CHARS = 460, 52  # of the picture of intervals, and of a line of text in it
KINDS = {Verdict.GAIN: "good", Verdict.KEEPS: "kept", Verdict.NO_GAIN: "plain", Verdict.UNDECIDED: "warn", Verdict.NONE: "bad"}
"""Class of each verdict in the style sheet: what a badge and the first block of a page look like."""


def header(summary: Summary) -> Markup:
    """Verdict, gain and interval, and what it cost."""
    return tag(
        "header",
        tag("p", f"AutoScout report: {summary.task.system}", class_="kicker"),
        tag("h1", summary.study or summary.task.system),
        goal_lines(summary),
        hero(summary),
        facts(summary),
    )


def goal_lines(summary: Summary) -> Markup:
    """What is improved within which limits, and under which load."""
    objective = summary.task.objective
    goal = " and ".join(f"{goal.direction.value} {goal.metric}" for goal in objective.goals)
    limits = [tag("code", str(limit)) for limit in objective.limits]
    line = tag("p", tag("code", goal), *([" with ", *comma_separated(limits)] if limits else []), class_="goal")
    return join([line, tag("p", f"Load: {one_line(load_text(summary), 300)}", class_="load quiet")])


def hero(summary: Summary, *, so_far: bool = False) -> Markup:
    """The verdict with the gain and its interval; `so_far` while the search still runs and nothing can be claimed."""
    gain, kind = summary.gain, "plain" if so_far else KINDS[summary.verdict]
    big: object = ""
    if gain.ratio is not None and (so_far or summary.verdict is Verdict.GAIN):
        interval = show_gain(gain.ratio, gain.low, gain.high).partition(" (")[2].rstrip(")")
        over = f" over {summary.reference_word}" if summary.baseline else ""
        better = tag("span", f" better than {summary.reference_word}" + " in single measurements" * so_far, class_="interval")
        big = tag(
            "p",
            tag("strong", show_gain(gain.ratio)),
            tag("span", f"{interval}{over}", class_="interval") if interval else better,
            class_="big",
        )
    elif summary.change_text and not so_far:
        big = tag("p", tag("strong", summary.change_text.replace("->", "→")), class_="big")
    elif summary.newly_kept_limits and not so_far:
        before, after = summary.newly_kept_limits[0]
        change = f"{show_number(before.value)} → {show_number(after.value)}"
        limit = tag("span", f"{before.limit.metric}, limit {show_limit(before.limit)}", class_="interval")
        big = tag("p", tag("strong", change), limit, class_="big kept")
    first = f" by {summary.task.objective.metric}" if summary.front else ""
    word = "so far" if so_far else summary.verdict.value + first
    words = [tag("p", badge(word, kind), " ", _fidelity_badge(summary), class_="verdict"), big]
    reason = "The search is under way; only its final shows what the best is worth." if so_far else summary.reason
    words += [tag("p", summary.price, class_="price worse")] if summary.price and not so_far else []
    words += [tag("p", f"gives up: {warning}", class_="price worse") for warning in summary.gives_up] if not so_far else []
    words.append(tag("p", reason))
    if gain.enough:
        value = f"{summary.gain_text}, " if summary.verdict is Verdict.KEEPS else ""
        words.append(tag("p", f"{value}{gain.confidence:.0%} interval, {gain.method}, {gain.pairs} pairs.", class_="quiet"))
    words += [tag("p", f"{summary.default_text}.")] if summary.default_text and not so_far else []
    words += [tag("p", summary.caveat, class_="quiet small")] if summary.caveat else []
    words += [tag("p", warning, class_="note small") for warning in summary.warnings]
    if not so_far:
        words += _advice(summary)
    drawing = (
        None if summary.verdict is Verdict.KEEPS else intervals(summary.finalists, summary.reference_name)
    )  # of the goal, which paid for the limits
    return tag("div", tag("div", *words, class_="words"), tag("div", drawing, class_="figure") if drawing else "", class_=f"hero {kind}")


def _advice(summary: Summary) -> list[Markup]:
    """What to do where no gain was shown."""
    words = []
    if summary.next:
        step, _, command = str(summary.next).partition(": ")
        words.append(tag("p", f"{step[:1].upper()}{step[1:]}: ", tag("code", command)))
    if summary.verdict is Verdict.UNDECIDED and summary.hands_over_best:
        held = " the hand-over folder holds the best configuration that kept the limits so far."
        words.append(tag("p", tag("strong", "Until then"), held))
    elif summary.verdict in (Verdict.NO_GAIN, Verdict.UNDECIDED) and summary.answer is not None:
        until = f"Until then keep {summary.reference_word}." if summary.verdict is Verdict.UNDECIDED else f"Keep {summary.reference_word}."
        words.append(tag("p", tag("strong", until), " That is what the hand-over folder holds."))
    return words


def load_text(summary: Summary) -> str:
    """The load in a sentence: the backend's own, else the facts of the workload."""
    if summary.load:
        return summary.load
    simple = {name: value for name, value in without_secrets(summary.task.workload).items() if isinstance(value, (bool, int, float, str))}
    return ", ".join(f"{name} {show(value)}" for name, value in simple.items()) or "not described"


def _fidelity_badge(summary: Summary) -> Markup:
    if summary.verdict is Verdict.NONE:
        return Markup("")
    if summary.fidelity is Fidelity.SIMULATED:
        return badge("simulated, not measured", "simulated")
    return badge("measured", "plain")


def facts(summary: Summary) -> Markup:
    """A row of figures."""
    failed = sum(len(group.trials) for group in summary.failures)
    cells: list[tuple[str, str]] = [
        ("trials", str(summary.spent.trials)),
        ("configurations", str(summary.spent.configs)),
        ("failed", str(failed)),
        ("time", show_duration(summary.spent.wall_s)),
        (f"{'simulated' if summary.fidelity is Fidelity.SIMULATED else 'measured'} cost", show_duration(summary.spent.cost_s)),
    ]
    for fidelity, counts in summary.counts.items():
        if len(summary.counts) > 1:
            cells.append((fidelity, str(sum(counts.values()))))
    cells += [(what, str(len(numbers))) for what, numbers in (("noisy", summary.noisy), ("disturbed", summary.dirty)) if numbers]
    cells += [("stopped early", str(summary.spent.bounded))] if summary.spent.bounded else []
    figures = tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in cells), class_="facts")
    parts = summary.spent.describe if summary.spent.parts else ""
    return join([figures, tag("p", f"Time of the trials: {parts}.", class_="quiet") if parts else ""])


def intervals(finalists: Sequence[Finalist], reference: str = "default") -> Markup | None:
    """Each finalist's gain with its interval below its name, and the line of the reference; None when there is no interval."""
    contenders = [finalist for finalist in finalists if finalist.gain.enough][:6]
    if not contenders:
        return None
    ends = [1.0]
    for finalist in contenders:
        ends += [bound for bound in (finalist.gain.low, finalist.gain.high) if bound is not None]
    scale = Scale.over(ends, 16, _FOREST_WIDTH - 16, margin=0.08)
    one, show = scale.place(1.0), _shown_alike(contenders)
    parts: list[Markup] = []
    top = 0.0
    for finalist in contenders:
        gain = finalist.gain
        if gain.low is None or gain.high is None or gain.ratio is None:
            continue
        words = textwrap.wrap(f"{finalist.side.name}: {show(gain.ratio)}", _FOREST_CHARS, break_on_hyphens=False)
        parts += [label(text, 8, top + 16 + 16 * number, class_="range-label") for number, text in enumerate(words)]
        y = top + 16 * len(words) + 16
        kind = "range" + (" better" if gain.better and finalist.eligible else "")
        parts += [line(one, y - 10, one, y + 10, "default"), line(scale.place(gain.low), y, scale.place(gain.high), y, kind)]
        parts += [tag("circle", cx=f"{scale.place(gain.ratio):.1f}", cy=y, r=6, class_=kind)]
        top = y + 14
    for tick in scale.ticks(5):
        x = scale.place(tick)
        at = middle(f"{tick:g}x", x, 0, _FOREST_WIDTH)
        parts += [line(x, top, x, top + 6, "grid"), label(f"{tick:g}x", at, top + 20, class_="tick", text_anchor="middle")]
    where = middle(reference, one, 0, _FOREST_WIDTH)
    parts += [line(one, top, one, top + 8, "default"), label(reference, where, top + 36, class_="default-label", text_anchor="middle")]
    return plot(*parts, width=_FOREST_WIDTH, height=top + 42, title=f"Gain over the {reference} with 95 % intervals", kind="intervals")


def _shown_alike(finalists: Sequence[Finalist]) -> Callable[[float], str]:
    """All gains of a picture as percentages, or all as times where one is twice as good."""
    is_large = any(finalist.gain.ratio is not None and finalist.gain.ratio >= 1.995 for finalist in finalists)
    return (lambda ratio: f"{ratio:.2f}x") if is_large else show_gain


__all__ = ["KINDS", "facts", "goal_lines", "header", "hero", "intervals", "load_text"]
