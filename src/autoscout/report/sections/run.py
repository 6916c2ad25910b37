"""The next step: what runs the answer, and what starts the system with the default and with the best."""

from __future__ import annotations

from autoscout.common.markup import Markup, join
from autoscout.report.elements import command
from autoscout.report.view import StudyView


def run_section(view: StudyView) -> Markup:
    """The inside of the section; nothing where the system is a Python call."""
    commands = view.commands if view.summary.answer is not None else ()
    answer = [command("the answer", "\n".join(commands))] if commands else []
    return join([*answer, *(command(f"the {title}", text) for title, text in view.starts.items())])


__all__ = ["run_section"]
