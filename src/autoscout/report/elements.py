"""What sections of a page are made of: a titled frame, legends, badges, commands, pictures of one style."""

from __future__ import annotations

from collections.abc import Sequence

from autoscout.common.draw import picture
from autoscout.common.markup import Markup, badge, join, tag
from autoscout.core.task import Task
from autoscout.core.trial import Fidelity, Status, Trial


def section(name: str, title: str, *children: object, lead: str = "") -> Markup:
    """A titled part of a page; `name` is its anchor."""
    head = tag("h2", title, id=name)
    return tag("section", head, lead_line(lead), *children, aria_labelledby=name)


def lead_line(text: str) -> Markup:
    """What a section is about, above everything else in it."""
    return tag("p", text, class_="lead") if text else Markup("")


def legend(keys: Sequence[tuple[str, str]]) -> Markup:
    """What the marks of a plot mean: CSS classes of the mark, and the words."""
    return tag("ul", *(tag("li", tag("i", class_=f"key {kind}"), text) for kind, text in keys), class_="legend")


def plot(*children: object, width: float, height: float, title: str, kind: str) -> Markup:
    """A picture as wide as its page allows; `kind` is its CSS class."""
    return picture(*children, width=width, height=height, title=title, class_=f"plot {kind}", style=f"--wide:{width:g}px")


def scrolled(drawing: object) -> Markup:
    """A picture that scrolls on a narrow screen."""
    return tag("div", drawing, class_="scroll plotted", tabindex="0")


def comma_separated(parts: Sequence[Markup]) -> list[str | Markup]:
    """The parts with commas between them."""
    return [piece for part in parts for piece in (", ", part)][1:]


def command(title: str, text: str) -> Markup:
    """A command with a button that copies it."""
    button = tag("button", "copy", type="button", class_="copy", aria_label=f"Copy the command for {title}")
    return tag("div", tag("p", title, button, class_="quiet small"), tag("pre", text, class_="commands", tabindex="0"), class_="command")


def status_badge(task: Task, trial: Trial) -> Markup:
    """How a trial fared, in a word and a colour."""
    answer = trial.measurement
    if not answer.ok:
        return badge(answer.status.value, "warn" if answer.status is Status.BOUNDED else "bad")
    kind = badge("ok", "good") if task.objective.loss(answer) != float("inf") else badge("breaks a limit", "warn")
    return join([kind, " ", badge("simulated", "simulated")]) if answer.fidelity is Fidelity.SIMULATED else kind


__all__ = ["comma_separated", "command", "lead_line", "legend", "plot", "scrolled", "section", "status_badge"]
