"""What went wrong."""

from __future__ import annotations

from collections.abc import Mapping

from autoscout.common.markup import Markup, badge, escape, join, tag
from autoscout.core.secrecy import hide_secrets
from autoscout.report.elements import comma_separated, lead_line
from autoscout.report.view import StudyView

MOST_NUMBERS = 40
"""Trials of one kind of failure that are listed by number."""


def failures_section(view: StudyView) -> Markup:
    """What went wrong, grouped, each with the end of a log and links to the whole ones."""
    if not view.summary.failures:
        return Markup("")
    groups = []
    for group in view.summary.failures:
        numbers = comma_separated([_numbered(number, view.links) for number in group.trials[:MOST_NUMBERS]])
        more = f" and {len(group.trials) - MOST_NUMBERS} more" if len(group.trials) > MOST_NUMBERS else ""
        head = tag("summary", badge(group.status.value, "bad"), f" {len(group.trials)} × ", tag("span", group.reason, class_="reason"))
        log = tag("pre", hide_secrets(group.log_tail), tabindex="0") if group.log_tail else tag("p", "No log was kept.", class_="quiet")
        groups.append(tag("details", head, tag("p", "Trials ", *numbers, more, class_="quiet small"), log))
    lead = "Grouped by what was said; the log is that of the latest trial of the group."
    return join([lead_line(lead), *groups])


def _numbered(number: int, links: Mapping[int, str]) -> Markup:
    """The number of a trial, as a link where there is one."""
    return tag("a", f"#{number}", href=links[number], title="its log") if number in links else escape(f"#{number}")


__all__ = ["MOST_NUMBERS", "failures_section"]
