"""What adapters to other tuners share: answers as plain pairs in a settled order, and proposals made valid, new and complete.

Other tuners are objects with memory of their own. To keep the promise that told trials alone decide what is asked next, an adapter tells
a fresh tuner everything, oldest first, and seeds it by the number of told trials.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autoscout.core.config import Config, Value
from autoscout.core.seeds import stream
from autoscout.core.trial import Proposal
from autoscout.search._moves import fresh, mutate
from autoscout.search._told import Told, finite_losses
from autoscout.space import Knob, Space

TRIES = 10
"""How often a tuner may repeat itself for one proposal."""

DEAR_TRIES = 3
"""The same for tuners that take long to answer."""

Draw = Callable[[int, int], Mapping[str, Value] | None]
"""What the tuner wants at a place and a try; None when it has nothing to say."""


def history(told: Told) -> list[tuple[Config, float]]:
    """Configurations and finite losses, oldest first; failures at the worst value that worked."""
    answers = told.answers()
    return [(answer.config, loss) for answer, loss in zip(answers, finite_losses(answers), strict=True)]


def propose(
    name: str, n: int, space: Space, seed: int, told: Told, given: Config, pending: Sequence[Proposal], draw: Draw, tries: int = TRIES
) -> list[Proposal]:
    """Up to `n` proposals: what `draw` wants, moved to the nearest valid configuration under `given`.

    A tuner that keeps wanting what is known gets a small change of its last wish instead, and chance at the end.
    """
    if n < 1 or not space.feasible(given):
        return []
    taken = told.taken(pending)
    found: list[Proposal] = []
    for place in range(len(pending), len(pending) + n):
        config, how = _one(space, seed, told, given, taken, place, draw, name, tries)
        if config is None:
            break
        taken.add(config)
        found.append(Proposal(config=config, origin={"by": name, "round": told.count, "place": place, "how": how}))
    return found


def _one(
    space: Space, seed: int, told: Told, given: Config, taken: set[Config], place: int, draw: Draw, name: str, tries: int
) -> tuple[Config | None, str]:
    config: Config | None = None
    for attempt in range(tries):
        wanted = draw(place, attempt)
        if wanted is None:
            break
        config = space.project(wanted, given)
        if config not in taken:
            return config, "model" if attempt == 0 else "again"
    rng = stream(seed, name, told.count, place)
    for _ in range(TRIES if config is not None else 0):
        assert config is not None
        config = mutate(space, config, rng, given) or config
        if config not in taken and config.extends(given):
            return config, "near"
    return fresh(space, rng, given, taken), "chance"


def at(knob: Knob, position: int) -> Value:
    """The value at a position, however far off it is."""
    return knob.values[min(max(0, position), len(knob.values) - 1)]
