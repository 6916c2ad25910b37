"""What the result depends on in addition to the configuration."""

from __future__ import annotations

import json
from typing import Any

from autoscout.common.markup import Markup, join, tag
from autoscout.core.secrecy import without_secrets
from autoscout.report.view import StudyView


def environment_section(view: StudyView) -> Markup:
    """The inside of the section."""
    blocks, task = [], view.summary.task
    environment = without_secrets({"workload": task.workload, "hardware": task.hardware, "software": task.software})
    titles = {**{name.capitalize(): facts for name, facts in environment.items()}, "Machine of the study": view.machine}
    for title, facts in titles.items():
        if not facts and title in ("Hardware", "Software") and view.machine:
            continue  # the machine says it
        rows = [join([tag("dt", name), tag("dd", _fact(value))]) for name, value in facts.items()]
        blocks.append(
            tag("div", tag("h3", title), tag("dl", *rows, class_="plain") if rows else tag("p", "nothing recorded", class_="quiet"))
        )
    return tag("div", *blocks, class_="columns facts-of")


def _fact(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


__all__ = ["environment_section"]
