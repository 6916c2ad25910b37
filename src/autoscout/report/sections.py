"""The parts of the page, top to bottom, each as HTML."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autoscout.analysis.ablation import Ablation
from autoscout.analysis.contributions import Contribution
from autoscout.analysis.importance import Importance
from autoscout.analysis.labels import one_line, show_limit, show_metric, show_spent
from autoscout.analysis.price import mark
from autoscout.analysis.summary import Summary
from autoscout.analysis.verdict import Side, Verdict
from autoscout.common.markup import Markup, badge, escape, join, number_cell, table, tag
from autoscout.common.text import hide_secrets, show, show_duration, show_gain, show_number, show_percent
from autoscout.core.config import Config
from autoscout.core.task import Task
from autoscout.core.trial import Fidelity, Status, Trial
from autoscout.report.meanings import meaning
from autoscout.report.plots import convergence, importance_bars, intervals

MOST_NUMBERS = 40
"""Trials of one kind of failure that are listed by number."""
_KINDS = {Verdict.GAIN: "good", Verdict.NO_GAIN: "warn", Verdict.WORSE: "warn", Verdict.NONE: "bad"}


def section(name: str, title: str, *children: object, lead: str = "") -> Markup:
    """A titled part of the page."""
    head = tag("h2", title, id=name)
    return tag("section", head, tag("p", lead, class_="lead") if lead else "", *children, aria_labelledby=name)


def legend(keys: Sequence[tuple[str, str]]) -> Markup:
    """What the marks of a plot mean: CSS classes of the mark, and the words."""
    return tag("ul", *(tag("li", tag("i", class_=f"key {kind}"), text) for kind, text in keys), class_="legend")


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
    line = tag("p", tag("code", goal), *([" with ", *_between(limits)] if limits else []), class_="goal")
    return join([line, tag("p", f"Load: {one_line(load_text(summary), 300)}", class_="load quiet")])


def hero(summary: Summary, *, so_far: bool = False) -> Markup:
    """The verdict with the gain and its interval; `so_far` while the search still runs and nothing can be claimed."""
    gain, kind = summary.gain, "plain" if so_far else _KINDS[summary.verdict]
    big: object = ""
    if gain.ratio is not None and (so_far or summary.verdict is Verdict.GAIN):
        interval = show_gain(gain.ratio, gain.low, gain.high).partition(" (")[2].rstrip(")")
        better = tag("span", " better than the default" + " in single measurements" * so_far, class_="interval")
        big = tag("p", tag("strong", show_gain(gain.ratio)), tag("span", interval, class_="interval") if interval else better, class_="big")
    first = f" by {summary.task.objective.metric}" if summary.front else ""
    word = "so far" if so_far else summary.verdict.value + first
    words = [tag("p", badge(word, kind), " ", _fidelity_badge(summary), class_="verdict"), big]
    reason = "The search is under way; only its final shows what the best is worth." if so_far else summary.reason
    words += [tag("p", summary.price, class_="price worse")] if summary.price and not so_far else []
    words.append(tag("p", reason))
    if gain.enough:
        words.append(tag("p", f"{gain.confidence:.0%} interval, {gain.method}, {gain.pairs} pairs.", class_="quiet"))
    words += [tag("p", summary.caveat, class_="quiet small")] if summary.caveat else []
    words += [tag("p", warning, class_="note small") for warning in summary.warnings]
    if summary.verdict is not Verdict.GAIN and summary.answer is not None and not so_far:
        words.append(tag("p", tag("strong", "Keep the default."), " That is what the hand-over folder holds."))
    plot = intervals(summary.finalists)
    return tag("div", tag("div", *words, class_="words"), tag("div", plot, class_="figure") if plot else "", class_=f"hero {kind}")


def load_text(summary: Summary) -> str:
    """The load in a sentence: the backend's own, else the facts of the workload."""
    if summary.load:
        return summary.load
    simple = {name: value for name, value in summary.task.workload.items() if isinstance(value, (bool, int, float, str))}
    return ", ".join(f"{name} {show(value)}" for name, value in simple.items()) or "not described"


def _between(parts: Sequence[Markup]) -> list[object]:
    found: list[object] = []
    for part in parts:
        found += [", ", part] if found else [part]
    return found


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


def comparison(summary: Summary, contributions: Sequence[Contribution] = ()) -> Markup:
    """Default and best, metric by metric, and the knobs that differ."""
    sides = (summary.default, summary.best)
    if not any(side and side.runs for side in sides):
        return Markup("")
    objective = summary.task.objective
    limited = list(dict.fromkeys(limit.metric for limit in objective.limits))
    others = sorted({name for side in sides if side for name in side.metrics} - {objective.metric, *limited})
    rows = []
    for name in dict.fromkeys([objective.metric, *limited, *others]):
        one, other = (side.metrics.get(name) if side else None for side in sides)
        change = f"{(other / one - 1.0) * 100.0:+.1f} %" if one and other is not None else ""
        word = mark(name, one, other, objective)
        cells = [
            number_cell(join([show_number(value), _spread(side, name, objective.metric)]))
            for side, value in zip(sides, (one, other), strict=True)
        ]
        head_cell = tag("th", name, scope="row", title=meaning(name) or None)
        rows.append([head_cell, *cells, number_cell(tag("span", f"{change} {word}".strip(), class_=word or None))])
    for limit in objective.limits:
        marks = [next((check for check in side.limits if check.limit == limit), None) if side else None for side in sides]
        cells = [number_cell("-" if mark is None else badge(mark.word.lower(), "good" if mark.holds else "bad")) for mark in marks]
        rows.append([tag("th", f"limit {show_limit(limit)}", scope="row"), *cells, number_cell("")])
    rows.append([tag("th", "runs", scope="row"), *(number_cell(side.runs if side else 0) for side in sides), number_cell("")])
    head = ["metric", *(tag("th", text, scope="col", class_="number") for text in ("default", summary.contender, "change"))]
    metrics = table(head, rows, f"Default and {summary.contender}, metric by metric")
    body = tag("div", metrics, changes(summary, contributions), class_="columns")
    lead = f"The {summary.contender} did best when measured again together with the default; values are medians of the runs."
    if not summary.gain.pairs:
        lead = "Single measurements of the search, which make the best look better than it is: there was no final."
    return section("comparison", f"Default and {summary.contender}", body, lead=lead)


def _spread(side: Side | None, name: str, metric: str) -> object:
    if side is None or side.spread is None or name != metric:
        return ""
    return tag("span", f" ± {side.spread * 100:.1f} %", class_="quiet")


def changes(summary: Summary, contributions: Sequence[Contribution] = ()) -> Markup:
    """The knobs to turn, and what each contributes."""
    known = {contribution.knob: str(contribution) for contribution in contributions}
    if not summary.changes:
        return tag("p", "No other configuration to compare with." if summary.best is None else "No knob differs.", class_="quiet")
    rows = []
    for change in summary.changes:
        after = "not used" if change.best_absent else change.after
        unit = tag("span", f" {change.unit}", class_="quiet") if change.unit else ""
        note = tag("div", change.help, class_="quiet small") if change.help else ""
        name = tag("th", tag("code", change.knob), note, scope="row")
        rows.append(
            [
                name,
                number_cell("not used" if change.default_absent else tag("del", change.before)),
                number_cell(join([tag("ins", after), unit])),
                *([number_cell(known.get(change.knob, ""))] if known else []),
            ]
        )
    titles = ("default", summary.contender, *(["contributes"] if known else []))
    head = ["knob", *(tag("th", text, scope="col", class_="number") for text in titles)]
    return table(head, rows, "Knobs that differ from the default")


def convergence_section(summary: Summary) -> Markup:
    """The curve."""
    plot = convergence(summary.task, summary.points, summary.default.value if summary.default else None)
    if plot is None:
        return Markup("")
    points = summary.points
    kinds = [
        ("measured", "one measurement", any(point.fidelity == "measured" and point.value is not None for point in points)),
        ("improved", "new best", True),
        ("broken", "breaks a limit", any(point.value is not None and not point.allowed for point in points)),
        ("failed", "failed", any(point.value is None for point in points)),
        ("simulated", "simulated", any(point.fidelity == "simulated" for point in points)),
    ]
    keys = legend([(kind, text) for kind, text, there in kinds if there])
    lead = "The line follows the best single measurement, which flatters it; the verdict above rests on the final alone."
    return section("convergence", "How the search went", keys, tag("div", plot, class_="scroll"), lead=lead)


def explanation(importance: Importance | None, ablation: Ablation | None) -> Markup:
    """Which knobs mattered, and the way from the default to the best."""
    parts = []
    if importance is not None:
        bars = importance_bars(importance)
        fit = f"{max(0.0, importance.fit):.0%}"
        lead = f"From {importance.configs} configurations; the model explains {fit} of the variation of trials it has not seen."
        inner: list[object] = [tag("h3", "Knob importance")]
        inner += [tag("p", lead, class_="quiet"), tag("div", bars, class_="scroll")] if bars else []
        inner += [tag("p", importance.note, class_="note")] if importance.note else []
        if importance.unvaried:
            inner.append(tag("p", f"Never varied: {', '.join(importance.unvaried)}.", class_="quiet small"))
        parts.append(tag("div", *inner))
    if ablation is not None:
        parts.append(tag("div", tag("h3", "From the default to the best"), _steps(ablation)))
    if not parts:
        return Markup("")
    lead = "Shares say how much of the variation goes away when a knob is fixed; those of knobs that work together overlap."
    return section("why", "Which knobs mattered", tag("div", *parts, class_="columns"), lead=lead)


def _steps(ablation: Ablation) -> Markup:
    if not ablation.steps:
        return tag("p", ablation.note, class_="note")
    rows = []
    for step in ablation.steps:
        kind = "plain" if step.source == "measured" else "simulated"
        gain, total = (show_percent(value) for value in (step.gain, step.total))
        rows.append([tag("td", tag("code", step.change)), number_cell(gain), number_cell(total), badge(step.source, kind)])
    head = ["change", tag("th", "step", scope="col", class_="number"), tag("th", "in all", scope="col", class_="number"), "source"]
    return table(head, rows, "One change at a time, the most helpful first")


def failures(summary: Summary, logs: Mapping[int, str] | None = None) -> Markup:
    """What went wrong, grouped, each with the end of a log, and links to the whole ones (`logs`, by number of the trial)."""
    if not summary.failures:
        return Markup("")
    groups = []
    for group in summary.failures:
        numbers = _between([_numbered(number, logs or {}) for number in group.trials[:MOST_NUMBERS]])
        more = f" and {len(group.trials) - MOST_NUMBERS} more" if len(group.trials) > MOST_NUMBERS else ""
        head = tag("summary", badge(group.status.value, "bad"), f" {len(group.trials)} × ", tag("span", group.reason, class_="reason"))
        log = tag("pre", hide_secrets(group.log_tail), tabindex="0") if group.log_tail else tag("p", "No log was kept.", class_="quiet")
        groups.append(tag("details", head, tag("p", "Trials ", *numbers, more, class_="quiet small"), log))
    return section("failures", "Failures", *groups, lead="Grouped by what was said; the log is that of the latest trial of the group.")


def _numbered(number: int, logs: Mapping[int, str]) -> Markup:
    """The number of a trial, as a link where its log is known."""
    return tag("a", f"#{number}", href=logs[number], title="its log") if number in logs else escape(f"#{number}")


def environment(task: Task) -> Markup:
    """What the result depends on in addition to the configuration."""
    blocks = []
    for title, facts_ in (("Workload", task.workload), ("Hardware", task.hardware), ("Software", task.software)):
        rows = [join([tag("dt", name), tag("dd", _fact(value))]) for name, value in facts_.items()]
        blocks.append(
            tag("div", tag("h3", title), tag("dl", *rows, class_="plain") if rows else tag("p", "nothing recorded", class_="quiet"))
        )
    return section("environment", "Measured with", tag("div", *blocks, class_="columns three"))


def _fact(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def how_to_run(commands: Sequence[str], starts: Mapping[str, str] | None = None) -> Markup:
    """The next step: what runs the answer, and what starts the system with the default and with the best."""
    if not commands and not starts:
        return Markup("")
    parts: list[object] = [command("the answer", "\n".join(commands))] if commands else []
    parts += [command(f"the {title}", text) for title, text in (starts or {}).items()]
    return section("run", "Run it", *parts)


def command(title: str, text: str) -> Markup:
    """A command with a button that copies it."""
    button = tag("button", "copy", type="button", class_="copy", aria_label=f"Copy the command for {title}")
    return tag("div", tag("p", title, button, class_="quiet small"), tag("pre", text, class_="commands", tabindex="0"), class_="command")


def trials_table(
    task: Task,
    trials: Sequence[Trial],
    knobs: Sequence[str],
    name_of: Callable[[Config], str],
    default_config: Config,
    best: Config | None,
    *,
    logs: Mapping[int, str] | None = None,
    first: int = 0,
) -> Markup:
    """Every trial; JavaScript sorts and filters the rows.

    Args:
        task: What was tuned.
        trials: The rows.
        knobs: Those that get columns.
        name_of: Gives configurations their readable names.
        default_config: Marked.
        best: Marked.
        logs: Number of a trial -> where its log lies.
        first: Index of the first row among all trials.
    """
    metrics = list(dict.fromkeys([*(goal.metric for goal in task.objective.goals), *(limit.metric for limit in task.objective.limits)]))
    columns = [("#", True), ("name", False), ("status", False), ("phase", False), *((metric, True) for metric in metrics), ("cost s", True)]
    columns += [(knob, False) for knob in knobs] + [("reason", False)]
    head = [tag("th", tag("button", text, type="button"), scope="col", class_="number" if right else None) for text, right in columns]
    rows = []
    for index, trial in enumerate(trials, start=first):
        answer, name = trial.measurement, name_of(trial.config)
        role = " default" if trial.config == default_config else " best" if trial.config == best else ""
        cells = [
            number_cell(trial.number, data_sort=trial.number),
            tag(
                "td",
                tag("span", name, class_="name", title=name),
                badge(role.strip(), "plain") if role and name != role.strip() else "",
            ),
            tag("td", status_badge(task, trial), *_log_link(trial.number, logs or {})),
            tag("td", trial.proposal.origin.phase.value),
            *(
                number_cell(show_metric(answer, metric), data_sort=answer.bounds.get(metric, answer.metrics.get(metric)))
                for metric in metrics
            ),
            number_cell(show_number(answer.cost_s), data_sort=answer.cost_s, title=show_spent(answer) or None),
            *(tag("td", show(trial.config[knob]) if knob in trial.config else "-", data_sort=trial.config.get(knob)) for knob in knobs),
            tag("td", tag("span", one_line(answer.reason, 300), class_="reason", title=one_line(answer.reason, 300))),
        ]
        rows.append(tag("tr", *cells, data_i=index, class_=f"status-{answer.status.value}{role}"))
    body = tag("table", tag("caption", "All trials", class_="quiet"), tag("thead", tag("tr", *head)), tag("tbody", *rows), id="trials")
    search = tag("input", type="search", id="filter", placeholder="filter: text, status or knob value", aria_label="Filter the trials")
    controls = tag("p", search, tag("span", "", id="shown", class_="quiet", role="status"), class_="controls")
    lead = f"The newest {len(trials)} of {first + len(trials)}; all are in summary.csv." if first else ""
    scrolled = tag("div", body, class_="scroll tall", tabindex="0", role="region", aria_label="All trials")
    return section("all", "All trials", controls, scrolled, lead=lead)


def _log_link(number: int, logs: Mapping[int, str]) -> list[object]:
    return [" ", tag("a", "log", href=logs[number])] if number in logs else []


def status_badge(task: Task, trial: Trial) -> Markup:
    """How a trial fared, in a word and a colour."""
    answer = trial.measurement
    if not answer.ok:
        return badge(answer.status.value, "warn" if answer.status is Status.BOUNDED else "bad")
    kind = badge("ok", "good") if task.objective.loss(answer) != float("inf") else badge("breaks a limit", "warn")
    return join([kind, " ", badge("simulated", "simulated")]) if answer.fidelity is Fidelity.SIMULATED else kind
