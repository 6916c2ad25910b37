"""Searcher `coordinate`: one knob at a time from the default, longer steps while they pay, a new start when nothing near is better."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from autoscout.core.config import Config, Value
from autoscout.core.errors import require
from autoscout.core.origin import Origin
from autoscout.core.protocols import Searcher
from autoscout.core.seeds import stream
from autoscout.core.task import Task
from autoscout.core.trial import Proposal, Trial
from autoscout.learning.answers import Answer, AnswerSet
from autoscout.space import Knob, Space
from autoscout.space.neighbours import changed, fresh, options

_NOTHING = Config()


@dataclass(frozen=True, kw_only=True)
class CoordinateOptions:
    """How far `coordinate` looks along a knob.

    Attributes:
        reach: Steps of 1, 2, 4, ... up to this one are tried in both directions of an ordered knob before the point counts as the
            best of its neighbourhood.
    """

    reach: int = 4

    def __post_init__(self) -> None:
        require("coordinate", self, {"reach": (self.reach >= 1, "must be at least 1")})


class CoordinateSearcher(Searcher):
    """Coordinate descent with restarts.

    All state is in the origins: every proposal says which start it belongs to, which knob it moved and by how much. The best of the
    newest start is the point that is moved from; a move that paid is repeated with twice the step, then the next knob has its turn.
    """

    def __init__(self, space: Space, task: Task, seed: int = 0, options: CoordinateOptions | None = None) -> None:
        self._space = space
        self._seed = seed
        self._options = options or CoordinateOptions()
        self._trials = AnswerSet(space, task.objective)
        names = list(space.knobs)
        self._order = [names[int(index)] for index in stream(seed, "coordinate", "order").permutation(len(names))]

    def ask(self, n: int, given: Config = _NOTHING, pending: Sequence[Proposal] = ()) -> list[Proposal]:
        if n < 1 or not self._space.feasible(given):
            return []
        taken = self._trials.taken(pending)
        proposals: list[Proposal] = []
        for config, notes in self._candidates(given, taken, len(pending)):
            if config in taken:
                continue
            taken.add(config)
            notes |= {"round": self._trials.count, "place": len(pending) + len(proposals)}
            proposals.append(Proposal(config=config, origin=Origin(by="coordinate", notes=notes)))
            if len(proposals) == n:
                break
        return proposals

    def tell(self, trials: Sequence[Trial]) -> None:
        self._trials.add(trials)

    def _candidates(self, given: Config, taken: set[Config], place: int) -> Iterator[tuple[Config, dict[str, Any]]]:
        answers = [answer for answer in self._trials.answers() if answer.config.extends(given)]
        start = max((_start(answer) for answer in answers), default=0)
        if not answers:
            yield self._space.project(self._space.default(), given), {"start": 0}
        best = min(
            (answer for answer in answers if _start(answer) == start and math.isfinite(answer.loss)),
            key=lambda answer: (answer.loss, answer.age),
            default=None,
        )
        if best is not None:
            for config, knob, step in self._around(best, given):
                yield config, {"start": start, "knob": knob, "step": step}
        rng = stream(self._seed, "coordinate", self._trials.count, place)
        while (anywhere := fresh(self._space, rng, given, taken)) is not None:
            yield anywhere, {"start": start + 1}

    def _around(self, best: Answer, given: Config) -> Iterator[tuple[Config, str, int]]:
        """Moves from the best point: on along the knob that led there, then the other knobs in turn."""
        last, step = best.origin.notes.get("knob"), best.origin.notes.get("step")
        at = self._order.index(last) if last in self._order else 0
        turn = self._order[at:] + self._order[:at]
        if isinstance(last, str) and isinstance(step, int) and last in best.config and self._space.knobs[last].ordered:
            for stride in (2 * step, step):
                yield from self._stepped(best.config, last, stride, given)
        for name in [*turn[1:], turn[0]]:
            if name not in best.config or name in given:
                continue
            if self._space.knobs[name].ordered:
                stride = 1
                while stride <= self._options.reach:
                    yield from self._stepped(best.config, name, stride, given)
                    yield from self._stepped(best.config, name, -stride, given)
                    stride *= 2
            else:
                yield from self._moved(best.config, name, options(self._space, best.config, name, given), given, 0)

    def _stepped(self, config: Config, name: str, stride: int, given: Config) -> Iterator[tuple[Config, str, int]]:
        knob = self._space.knobs[name]
        values = self._space.choices(name, config.only(self._space.ancestors(name)).extend(given))
        here = _place(knob, config[name], values)
        target = here + stride
        if name not in given and 0 <= target < len(values):
            yield from self._moved(config, name, [values[target]], given, stride)

    def _moved(self, config: Config, name: str, values: Sequence[Value], given: Config, stride: int) -> Iterator[tuple[Config, str, int]]:
        for value in values:
            moved = changed(self._space, config, name, value, given)
            if moved is not None:
                yield moved, name, stride


def _start(answer: Answer) -> int:
    start = answer.origin.notes.get("start")
    return start if answer.origin.by == "coordinate" and isinstance(start, int) else 0


def _place(knob: Knob, value: Value, values: Sequence[Value]) -> int:
    """Where an ordered knob's value, or the nearest to it, stands among some of its values, which ascend."""
    return bisect_left(values, knob.nearest(value, values)) if values else 0  # type: ignore[type-var]


__all__ = ["CoordinateSearcher"]
