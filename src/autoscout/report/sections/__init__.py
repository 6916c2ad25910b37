"""The sections of a study's page, in `report.html` and in the dashboard: a new one is a function in a file here and a row of the list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from autoscout.common.markup import Markup
from autoscout.report.elements import section
from autoscout.report.sections.comparison import comparison_section
from autoscout.report.sections.convergence import convergence_section
from autoscout.report.sections.coordinates import coordinates_section
from autoscout.report.sections.distribution import distribution_section
from autoscout.report.sections.environment import environment_section
from autoscout.report.sections.failures import failures_section
from autoscout.report.sections.learning import learning_section
from autoscout.report.sections.predicted import predicted_section
from autoscout.report.sections.run import run_section
from autoscout.report.sections.slices import slices_section
from autoscout.report.sections.timeline import timeline_section
from autoscout.report.sections.tradeoff import front_section, tradeoff_section
from autoscout.report.sections.trials import trials_section
from autoscout.report.sections.unseen import unseen_section
from autoscout.report.sections.why import why_section
from autoscout.report.view import StudyView


class When(Enum):
    """When the dashboard draws a section, and in which third of its page it stands; `report.html` keeps the order of the list."""

    FIRST = "at the first paint"
    LATER = "fetched after the first paint: it takes long to work out"
    LAST = "at the first paint, below what is fetched"


@dataclass(frozen=True, kw_only=True)
class Section:
    """One section.

    Attributes:
        name: Its anchor, and its address in the dashboard.
        title: `{contender}` stands for what the strongest configuration is called.
        inside: Draws everything below the title; nothing where the study has nothing to show here.
        when: When the dashboard draws it.
    """

    name: str
    title: str
    inside: Callable[[StudyView], Markup]
    when: When = When.FIRST

    def draw(self, view: StudyView) -> Markup:
        """The section with its title; nothing where it has nothing to show."""
        inside = self.inside(view)
        return section(self.name, self.title.format(contender=view.summary.contender), inside) if inside else Markup("")


SECTIONS = (
    Section(name="run", title="Run it", inside=run_section),
    Section(name="front", title="The front", inside=front_section),
    Section(name="comparison", title="Default and {contender}", inside=comparison_section, when=When.LATER),
    Section(name="learning", title="What is learned", inside=learning_section, when=When.LATER),
    Section(name="convergence", title="How the search went", inside=convergence_section),
    Section(name="timeline", title="Workers and failures over time", inside=timeline_section),
    Section(name="tradeoff", title="Throughput and latency", inside=tradeoff_section),
    Section(name="predicted", title="Predicted and measured", inside=predicted_section, when=When.LATER),
    Section(name="unseen", title="Windows not judged on", inside=unseen_section),
    Section(name="why", title="Which knobs mattered", inside=why_section, when=When.LATER),
    Section(name="distribution", title="Good and bad configurations", inside=distribution_section, when=When.LATER),
    Section(name="slices", title="One knob at a time", inside=slices_section, when=When.LATER),
    Section(name="parallel", title="All configurations at a glance", inside=coordinates_section, when=When.LATER),
    Section(name="failures", title="Failures", inside=failures_section, when=When.LAST),
    Section(name="all", title="All trials", inside=trials_section, when=When.LAST),
    Section(name="environment", title="Measured with", inside=environment_section, when=When.LAST),
)
"""From top to bottom."""

__all__ = ["SECTIONS", "Section", "When"]
