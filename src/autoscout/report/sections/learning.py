"""What default and answer learn, step by step."""

from __future__ import annotations

import numpy as np

from autoscout.common.draw import HEIGHT, WIDTH, chart
from autoscout.common.markup import Markup, join
from autoscout.report.elements import lead_line, plot, scrolled
from autoscout.report.view import StudyView


def learning_section(view: StudyView) -> Markup:
    """The inside of the section; nothing for a system that reports no losses."""
    learning = view.result.learning
    if learning is None:
        return Markup("")
    lines = {
        name: (np.arange(1, len(curve) + 1, dtype=float), np.array(curve))
        for name, curve in (("default", learning.default), (view.summary.contender, learning.best))
    }
    drawing = plot(chart("loss", lines, "step"), width=WIDTH, height=HEIGHT, title=f"{learning.sentence}.", kind="learning")
    return join([lead_line(f"{learning.sentence}."), scrolled(drawing)])
