"""What the sections of a page draw: the result of a study, and what only a page needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from autoscout.analysis.curves import ordered
from autoscout.analysis.predicted import Predictions
from autoscout.analysis.result import StudyResult
from autoscout.analysis.summary import Summary
from autoscout.analysis.unseen import UnseenWindows
from autoscout.core.trial import Trial

Drawing = TypeVar("Drawing")

MOST_LINES = 1500
"""Lines of the parallel coordinates; more hide each other and slow the browser down."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StudyView:
    """One study as its page shows it.

    Attributes:
        result: What its trials show.
        invalid: Trials that do not count: the timeline shows them too.
        predictions: What a simulator had predicted, where one was used.
        unseen: How it stands in windows that it did not judge on, where its traffic has some.
        links: Number of a trial -> where its log or page lies.
        commands: How to run the answer, line by line.
        machine: The machine that ran the study, in words.
        starts: What starts the system, by configuration: the command lines of the default and of the best.
        most_lines: Lines of the parallel coordinates.
    """

    result: StudyResult
    invalid: Sequence[Trial] = ()
    predictions: Predictions | None = None
    unseen: UnseenWindows | None = None
    links: Mapping[int, str] = field(default_factory=dict)
    commands: Sequence[str] = ()
    machine: Mapping[str, str] = field(default_factory=dict)
    starts: Mapping[str, str] = field(default_factory=dict)
    most_lines: int = MOST_LINES

    @property
    def summary(self) -> Summary:
        """The verdict with everything it rests on."""
        return self.result.summary

    @cached_property
    def trials(self) -> list[Trial]:
        """The trials that count, in order."""
        return ordered(self.result.trials)

    def once(self, name: str, draw: Callable[[], Drawing]) -> Drawing:
        """What `draw` gives, drawn once for this view: pages of a huge study are not drawn for every reader."""
        if name not in self._drawings:
            self._drawings[name] = draw()
        drawing: Drawing = self._drawings[name]
        return drawing

    @cached_property
    def _drawings(self) -> dict[str, Any]:
        return {}


__all__ = ["MOST_LINES", "StudyView"]
