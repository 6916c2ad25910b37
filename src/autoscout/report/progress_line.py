"""Progress as one line that changes in place, for notebooks and scripts."""

from __future__ import annotations

import sys
from typing import TextIO

from autoscout.analysis.tally import Tally
from autoscout.common.text import show_duration, show_number
from autoscout.core.clock import Clock, RealClock
from autoscout.core.trial import Proposal, Trial

BAR = 20  # characters


class ProgressLine:
    """Watches a study: a bar, how many trials there are, the time they took, and the best value.

    Args:
        tally: Counts the trials.
        stream: Where the line goes; standard error when None.
        clock: For the elapsed time.
    """

    def __init__(self, tally: Tally, stream: TextIO | None = None, clock: Clock | None = None) -> None:
        self._tally, self._stream, self._clock = tally, stream or sys.stderr, clock or RealClock()
        self._began_s, self._width, self._has_begun = self._clock.span_s(), 0, False

    def phase(self, name: str) -> None:  # noqa: ARG002
        if not self._has_begun:  # the trials of earlier runs have been counted
            self._has_begun = True
            self._tally.begin()
        self._draw()

    def started(self, proposal: Proposal) -> None: ...

    def finished(self, trial: Trial) -> None:
        self._tally.add(trial)
        if self._has_begun:
            self._draw()

    def close(self) -> None:
        """End the line."""
        if self._width:
            self._stream.write("\n")
            self._stream.flush()
        self._width = 0

    @property
    def text(self) -> str:
        """The line as it is now."""
        tally, elapsed_s = self._tally, self._clock.span_s() - self._began_s
        share = tally.share(elapsed_s)
        parts = [] if share is None else [f"[{'#' * round(share * BAR):.<{BAR}}]"]
        parts += [tally.progress_text(), show_duration(elapsed_s)]
        parts += [f"{tally.failed} failed"] if tally.failed else []
        if tally.best is not None:
            parts.append(f"best {tally.task.objective.metric} {show_number(tally.best_value)}")
        return "  ".join(parts)

    def _draw(self) -> None:
        text = self.text
        self._stream.write(f"\r{text:<{self._width}}")  # what is left of a longer line is blanked
        self._stream.flush()
        self._width = len(text)


__all__ = ["ProgressLine"]
