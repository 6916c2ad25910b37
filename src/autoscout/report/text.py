"""The summary for a terminal: rich renderables. Prints nothing itself."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from autoscout.analysis.contributions import Contribution, shown_contributions
from autoscout.analysis.front import Front, Standing
from autoscout.analysis.gain import Gain
from autoscout.analysis.importance import Importance
from autoscout.analysis.labels import one_line, shorten, show_limit
from autoscout.analysis.limits import LimitState
from autoscout.analysis.pooled import PooledRuns
from autoscout.analysis.price import mark
from autoscout.analysis.summary import Summary
from autoscout.analysis.verdict import Finalist, Verdict
from autoscout.common.text import enumeration, plural, show_duration, show_gain, show_number
from autoscout.core.trial import Fidelity
from autoscout.report.metrics import show_change, shown_metrics

_VALUE_CHARS = 80  # of a knob's value; files and pages have the whole
_MARKS = {"better": "green", "worse": "red"}
_STATES = {LimitState.KEPT: "green", LimitState.UNSURE: "yellow", LimitState.BROKEN: "bold red", LimitState.MISSING: "bold red"}
_STANDINGS = {Standing.ON_FRONT: "green", Standing.UNSURE: "yellow", Standing.DOMINATED: "red"}
COLOURS = {Verdict.GAIN: "green", Verdict.KEEPS: "cyan", Verdict.NO_GAIN: "white", Verdict.UNDECIDED: "yellow", Verdict.NONE: "red"}


def render(summary: Summary, importance: Importance | None = None, contributions: Sequence[Contribution] = ()) -> RenderableType:
    """The whole summary, top to bottom."""
    parts: list[RenderableType] = [verdict_panel(summary)]
    if summary.front:
        parts.append(front_table(summary.front))
    if any(summary.sides.values()):
        parts.append(comparison_table(summary))
    if summary.changes:
        parts.append(changes_table(summary, contributions))
    if sum(bool(finalist.side.rounds) for finalist in summary.finalists) > 1:
        parts.append(finalists_table(summary))
    if importance is not None and importance.is_known:
        parts.append(importance_table(importance))
    if summary.failures:
        parts.append(failures_table(summary))
    parts.append(spent_line(summary))
    return Group(*parts)


def verdict_panel(summary: Summary) -> Panel:
    """Verdict, gain and interval."""
    colour = COLOURS[summary.verdict]
    first = f" BY {summary.task.objective.metric}" if summary.front else ""
    text = Text(summary.verdict.value.upper() + first, style=f"bold {colour}")
    if summary.verdict is Verdict.GAIN and summary.gain.ratio is not None:
        over = f" over {summary.reference_word}" if summary.baseline else ""
        text.append(f"  {show_gain(summary.gain.ratio)}{over}", style=f"bold {colour}")
        if summary.over_default and summary.over_default.ratio is not None:
            text.append(f", {show_gain(summary.over_default.ratio)} over the engine's default", style=f"bold {colour}")
    elif summary.change_text:
        text.append(f"  {summary.change_text}", style=f"bold {colour}")
    if summary.newly_kept_limits:
        text.append(f"  {summary.kept_limits_text}", style=f"bold {colour}")
    if summary.fidelity is Fidelity.SIMULATED:
        text.append("  (simulated, not measured)", style="bold magenta")
    text.append(f"\n{summary.reason}")
    if summary.gain.ratio is not None:
        text.append(f"\n{summary.gain_text}")
        if summary.gain.enough:
            text.append(f"  {summary.gain.confidence:.0%} interval, {summary.gain.method}, n = {summary.gain.pairs}", style="dim")
    if summary.default_text:
        text.append(f"\n{summary.default_text}")
    if summary.price:
        text.append(f"\n{summary.price}", style="bold red")
    for warning in summary.gives_up:
        text.append(f"\ngives up: {warning}", style="bold red")
    if summary.next:
        text.append(f"\n{summary.next}", style="bold")
    for warning in summary.warnings:
        text.append(f"\n! {warning}", style="yellow")
    return Panel(text, title=Text(summary.study or "result"), title_align="left", border_style=colour, expand=False)


def front_table(front: Front) -> RenderableType:
    """The points of the front and the default, goal by goal."""
    table = Table(title="Front", title_justify="left")
    table.add_column("point", no_wrap=True)
    for goal in front.goals:
        table.add_column(Text(f"{goal.metric} ({goal.direction.value})"), justify="right")
    table.add_column("", overflow="fold")
    for point in front.compared:
        values = [Text(str(point.values[goal.metric])) for goal in front.goals]
        table.add_row(Text(point.name), *values, Text(point.remark, _STANDINGS[point.standing]))
    return Group(table, Text(front.headline), Text(front.note, style="dim"))


def comparison_table(summary: Summary) -> Table:
    """References and best: objective, limits and costs; every metric where they are few."""
    objective = summary.task.objective
    titles, sides = list(summary.sides), list(summary.sides.values())
    table = Table(title=enumeration(titles).capitalize(), title_justify="left")
    table.add_column("metric", overflow="fold")
    for name in (*titles, "change"):
        table.add_column(name, justify="right", overflow="fold")
    names, more = shown_metrics(summary)
    for name in names:
        values = [side.metrics.get(name) if side else None for side in sides]
        one, other = (side.metrics.get(name) if side else None for side in (summary.reference, summary.best))
        change = Text(show_change(summary, name))
        if word := mark(name, one, other, objective):
            change = Text(f"{change} {word}".strip(), _MARKS[word])
        style = "bold" if name == objective.metric else ""
        cells = (_value(side, name, value) for side, value in zip(sides, values, strict=True))
        table.add_row(Text(name), *cells, change, style=style)
    if more:
        table.add_row(Text(f"... {more} more in report.html", "dim"), *([""] * len(titles)), "")
    for limit in objective.limits:
        checks = [next((check for check in side.limits if check.limit == limit), None) if side else None for side in sides]
        marks = [Text("-") if check is None else Text(check.word, _STATES[check.state]) for check in checks]
        table.add_row(Text(f"limit {show_limit(limit)}"), *marks, "")
    table.add_row("runs", *(Text(str(side.runs) if side else "0") for side in sides), "")
    table.add_row("trials", *(Text(_numbers(side.trials) if side else "-") for side in sides), "")
    return table


def _value(side: PooledRuns | None, name: str, value: float | None) -> Text:
    text = Text(show_number(value))
    if side and side.spread is not None and name in side.metrics and value == side.value:
        text.append(f" ± {side.spread * 100:.1f} %", style="dim")
    return text


def changes_table(summary: Summary, contributions: Sequence[Contribution] = ()) -> Table:
    """Knobs that the best configuration sets differently, and what each contributes."""
    table = Table(title="Changed knobs", title_justify="left")
    worth_of = shown_contributions(contributions)
    for name in ("knob", summary.reference_name, summary.contender, "unit", *(["contributes"] if worth_of else []), "what it does"):
        table.add_column(name, overflow="fold", no_wrap=name == "knob")  # a name is searched for, and copied
    for change in summary.changes:
        worth = [worth_of.get(change.knob, "")] if worth_of else []
        values = (shorten(text, _VALUE_CHARS) for text in (change.before, change.after))
        cells = (change.knob, *values, change.unit, *worth, one_line(change.help, 60))
        table.add_row(*map(Text, cells))
    return table


def finalists_table(summary: Summary) -> Table:
    """The contenders of the final phase."""
    table = Table(title=f"Finalists, {_word(summary)} again together with the {summary.reference_name}", title_justify="left")
    both = ["over default"] if summary.over_default or summary.baseline_gain else []
    for name in ("name", summary.task.objective.metric, "gain", "95 % interval", *both, "pairs", ""):
        table.add_column(Text(name), justify="left" if name in ("name", "") else "right")
    for finalist in summary.finalists:
        gain = finalist.gain
        interval = f"{gain.low:.3f} to {gain.high:.3f}" if gain.low is not None and gain.high is not None else "not enough repeats"
        table.add_row(
            Text(finalist.side.name),
            show_number(finalist.side.value),
            _ratio(gain),
            interval,
            *([_ratio(finalist.over_default)] if both else []),
            str(gain.pairs),
            _remark(finalist),
        )
    return table


def _ratio(gain: Gain | None) -> str:
    return f"{gain.ratio:.3f}x" if gain is not None and gain.ratio is not None else "-"


def _remark(finalist: Finalist) -> str:
    if not finalist.eligible:
        return "failed" if finalist.side.failures else "breaks a limit"
    return "limit not told apart" if finalist.side.unsure else ""


def importance_table(importance: Importance) -> RenderableType:
    """Which knobs mattered."""
    fit = f"the model explains {max(0.0, importance.fit):.0%} of the variation"
    table = Table(title="Knob importance", title_justify="left")
    for name in ("knob", "share", "from", "to"):
        table.add_column(name, justify="left" if name == "knob" else "right")
    for knob in importance.knobs[:10]:
        table.add_row(Text(knob.name), f"{knob.share:.0%}", f"{knob.low:.0%}", f"{knob.high:.0%}")
    return Group(table, Text(f"{fit}; {importance.note}" if importance.note else fit, style="dim"))


def failures_table(summary: Summary, limit: int = 8) -> Table:
    """Failures, grouped."""
    total = sum(len(group.trials) for group in summary.failures)
    table = Table(title=f"Failures ({total})", title_justify="left")
    for name in ("count", "status", "reason", "trials"):
        table.add_column(name, justify="right" if name == "count" else "left", overflow="fold")
    for group in summary.failures[:limit]:
        table.add_row(str(len(group.trials)), Text(group.status.value, "red"), Text(one_line(group.reason)), _numbers(group.trials))
    if len(summary.failures) > limit:
        table.add_row("", "", f"and {len(summary.failures) - limit} other kinds", "")
    return table


def _word(summary: Summary) -> str:
    """What was done to the configurations: `measured`, or only `simulated`."""
    return "simulated" if summary.fidelity is Fidelity.SIMULATED else "measured"


def spent_line(summary: Summary) -> Text:
    """What it cost, and how good the measurements were."""
    counts = "; ".join(
        f"{fidelity}: " + ", ".join(f"{count} {status}" for status, count in sorted(statuses.items(), key=lambda item: -item[1]))
        for fidelity, statuses in summary.counts.items()
    )
    line = (
        f"{plural(summary.spent.trials, 'trial')} of {plural(summary.spent.configs, 'configuration')} "
        f"in {show_duration(summary.spent.wall_s)} "
        f"({_word(summary)} cost {show_duration(summary.spent.cost_s)})"
    )
    for what, numbers in (("noisy", summary.noisy), ("disturbed", summary.dirty)):
        if numbers:
            line += f"; {len(numbers)} {what}"
    return Text("\n".join(filter(None, [line, summary.spent.describe, counts])), style="dim")


def _numbers(numbers: tuple[int, ...], limit: int = 8) -> str:
    text = " ".join(f"#{number}" for number in numbers[:limit])
    return text if len(numbers) <= limit else f"{text} … ({len(numbers)})"
