"""What adapters to other tuners share: answers as plain pairs in a fixed order, and proposals made valid, new and complete.

Other tuners are objects with memory of their own. So that told trials alone decide what is asked next, an adapter tells
a fresh tuner everything, oldest first, and seeds it by the number of told trials.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from autoscout.core.config import Config, Value
from autoscout.core.origin import Origin
from autoscout.core.seeds import stream
from autoscout.core.trial import Proposal
from autoscout.learning.answers import AnswerSet, finite_losses
from autoscout.space import Knob, Space
from autoscout.space.neighbours import fresh, mutate

TRIES = 10
"""How often a tuner may repeat itself for one proposal."""

FEW_TRIES = 3
"""Tries for tuners that take long to answer."""

Draw = Callable[[int, int], Mapping[str, Value] | None]
"""What the tuner wants, for a place in the batch and a try; None when it has no more to offer."""


def history(trials: AnswerSet) -> list[tuple[Config, float]]:
    """Configurations and finite losses, oldest first; failures at the worst value that worked."""
    answers = trials.answers()
    return [(answer.config, loss) for answer, loss in zip(answers, finite_losses(answers), strict=True)]


def propose(
    name: str,
    n: int,
    space: Space,
    seed: int,
    trials: AnswerSet,
    given: Config,
    pending: Sequence[Proposal],
    draw: Draw,
    tries: int = TRIES,
) -> list[Proposal]:
    """Up to `n` proposals: what `draw` wants, moved to the nearest valid configuration under `given`.

    A tuner that keeps wanting what is known gets a small change of its last suggestion instead, and in the end a random configuration.
    """
    if n < 1 or not space.feasible(given):
        return []
    taken = trials.taken(pending)
    proposals: list[Proposal] = []
    for index in range(len(pending), len(pending) + n):
        config, how = _one(space, seed, trials, given, taken, index, draw, name, tries)
        if config is None:
            break
        taken.add(config)
        proposals.append(Proposal(config=config, origin=Origin(by=name, notes={"round": trials.count, "place": index, "how": how})))
    return proposals


def _one(
    space: Space, seed: int, trials: AnswerSet, given: Config, taken: set[Config], index: int, draw: Draw, name: str, tries: int
) -> tuple[Config | None, str]:
    config: Config | None = None
    for attempt in range(tries):
        suggestion = draw(index, attempt)
        if suggestion is None:
            break
        config = space.project(suggestion, given)
        if config not in taken:
            return config, "model" if attempt == 0 else "again"
    rng = stream(seed, name, trials.count, index)
    for _ in range(TRIES if config is not None else 0):
        assert config is not None
        config = mutate(space, config, rng, given) or config
        if config not in taken and config.extends(given):
            return config, "near"
    return fresh(space, rng, given, taken), "chance"


def in_turn(suggestions: Callable[[], Iterator[Mapping[str, Value]]]) -> Draw:
    """Suggestions of a tuner that gives one after the other; it is built when the first is asked for."""
    started: list[Iterator[Mapping[str, Value]]] = []

    def draw(index: int, attempt: int) -> Mapping[str, Value] | None:  # noqa: ARG001 - it keeps its own count
        if not started:
            started.append(suggestions())
        return next(started[0], None)

    return draw


class Flat:
    """A space for tuners that know no conditions: every knob is a position, inactive ones are at their default.

    Knobs have plain names, and those with a single value are left out.
    """

    def __init__(self, space: Space) -> None:
        self.names = {f"k{index}": name for index, (name, knob) in enumerate(space.knobs.items()) if len(knob.values) > 1}
        self.knobs = {key: space.knobs[name] for key, name in self.names.items()}

    def positions(self, config: Config) -> dict[str, int]:
        return {key: knob.position(config.get(knob.name, knob.default)) or 0 for key, knob in self.knobs.items()}

    def values(self, positions: Mapping[str, Any]) -> dict[str, Value]:
        return {knob.name: at(knob, int(positions[key])) for key, knob in self.knobs.items()}


def at(knob: Knob, position: int) -> Value:
    """The value at a position, however far off it is."""
    return knob.values[min(max(0, position), len(knob.values) - 1)]
